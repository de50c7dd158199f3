"""Front end for `@dace.program` functions: graph operators in them, and their program form."""
