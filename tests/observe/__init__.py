"""What an app reports about itself: metrics and traces."""
