"""One small file a model family: where its parts are and how they are called."""
