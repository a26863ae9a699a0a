"""What keeps a warehouse small and whole: old files, old rows, and derived tables made again."""
