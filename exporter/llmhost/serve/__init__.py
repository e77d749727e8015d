"""The HTTP server: bounded, patient with nobody, and the routes on it."""
