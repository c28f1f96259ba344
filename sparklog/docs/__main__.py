"""Write every generated file into the checkout."""

from sparklog.docs.pages import write_pages

write_pages()
