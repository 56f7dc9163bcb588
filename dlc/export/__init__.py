"""Writing models in formats that others read; today the text of the language itself."""
