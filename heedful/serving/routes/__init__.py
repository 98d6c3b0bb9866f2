"""The HTTP interfaces, one module each; all of them call `TranslationService`."""
