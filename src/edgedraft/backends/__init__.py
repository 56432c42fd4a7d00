"""Models behind one small interface (`base`), found by entry point (`registry`). Importing this loads no engine."""
