"""The transaction coordinator: the producer of each transactional id, and its transaction's way to its end."""
