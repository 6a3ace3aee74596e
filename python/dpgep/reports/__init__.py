"""What a privacy report says, to be read, signed and checked by others."""
