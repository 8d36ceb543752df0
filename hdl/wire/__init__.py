"""Room ``wire``: header and opcode definitions; the only place where a wire offset stands."""
