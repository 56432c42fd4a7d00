"""Speech emotion captioning: recordings in, captions and their account out."""
