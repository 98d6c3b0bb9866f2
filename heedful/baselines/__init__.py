"""The systems that the paper compares with, behind the same protocol: recurrent and convolutional sequence models."""
