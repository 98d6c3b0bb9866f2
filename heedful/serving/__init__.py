"""`heedful serve`: an HTTP server for translation that existing clients can use.

request -> routes -> TranslationService -> Batcher -> EnginePool -> worker processes, each with all models
"""
