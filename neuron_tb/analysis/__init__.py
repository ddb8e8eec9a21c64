"""Tables made from a Trace."""
