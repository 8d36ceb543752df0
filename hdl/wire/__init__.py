"""Room ``wire``: what packets look like; the only place where a wire offset is written."""
