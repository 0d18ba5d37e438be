"""What the course needs around what it derives: runs, figures, checks, pages."""
