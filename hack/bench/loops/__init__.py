"""The same training by loops of one's own: with a Session, with accelerate and with Fabric."""
