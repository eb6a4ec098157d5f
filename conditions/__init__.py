"""Control conditions."""
