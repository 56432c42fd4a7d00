"""What travels between edge and cloud: `messages` is the contract, `codec` the bytes, docs/protocol.md the rules."""
