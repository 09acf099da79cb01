autocmd BufNewFile,BufRead *.cell setfiletype cell
