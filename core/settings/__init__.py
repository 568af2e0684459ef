"""What the user chose: profiles, where they lie, and how flags, environment, file and default combine."""
