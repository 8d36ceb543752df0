"""Properties of small components, proved for all inputs; each file holds one kind of component."""
