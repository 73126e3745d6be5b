"""Other programs that run our models, such as CTranslate2; nothing here imports torch."""
