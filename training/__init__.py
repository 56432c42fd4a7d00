"""How the demo pair of `captioner` models was made: run from the root of the repository, see README.md."""
