"""The backends memslot ships: plugins like any other, each importing its SDK only when it is built."""
