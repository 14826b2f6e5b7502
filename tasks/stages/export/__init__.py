"""Export: the predictions as GLUE takes them, zipped and checked."""
