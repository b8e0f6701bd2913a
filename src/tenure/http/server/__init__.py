"""The routes: requests become jobs, and jobs become resources."""
