/* elf_names.c: the functions of a shared library, without loading it. In: a file. Out: names of its dynamic
 * symbols. Guaranteed: a file that is cut, or is anything else, is refused with the reason; nothing outside
 * of it is read. Source: the System V ABI, chapters "Object Files" and "Dynamic Linking". */
#include <elf.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "elf_names.h"

typedef struct File {
    const char *data;
    size_t bytes;
} File;

/* `count` things of `each` bytes at `offset`; NULL where they are not all in the file. */
static const void *part(const File *f, uint64_t offset, uint64_t count, uint64_t each)
{
    if (offset > f->bytes || (each && count > (f->bytes - offset) / each))
        return NULL;
    return f->data + offset;
}

static const char *read_file(Compiler *c, const char *path, File *f)
{
    struct stat st;
    FILE *in = fopen(path, "rb");
    if (!in)
        return strerror(errno);
    if (fstat(fileno(in), &st) != 0 || !S_ISREG(st.st_mode)) {
        fclose(in);
        return "it is no file";
    }
    char *data = arena_alloc(c->arena, (size_t)st.st_size + 1);
    *f = (File){ data, fread(data, 1, (size_t)st.st_size, in) };
    fclose(in);
    return NULL;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* Adds the functions of one table of symbols. False where it does not lie inside the file. */
static bool add_symbols(Compiler *c, const File *f, const Elf64_Shdr *table, const Elf64_Shdr *texts,
                        const char *suffix, ElfNames *names)
{
    uint64_t count = table->sh_size / sizeof(Elf64_Sym);
    const char *symbols = part(f, table->sh_offset, count, sizeof(Elf64_Sym));
    const char *text = part(f, texts->sh_offset, texts->sh_size, 1);
    if (!symbols || !text)
        return false;
    for (uint64_t i = 0; i < count; i++) {
        Elf64_Sym s;
        memcpy(&s, symbols + i * sizeof s, sizeof s);
        if (ELF64_ST_TYPE(s.st_info) != STT_FUNC || s.st_shndx == SHN_UNDEF || s.st_name >= texts->sh_size)
            continue;
        size_t room = texts->sh_size - s.st_name, n = strnlen(text + s.st_name, room), end = strlen(suffix);
        if (n < room && n > end && memcmp(text + s.st_name + n - end, suffix, end) == 0)
            vec_push(c->arena, names, intern_n(c, text + s.st_name, n));
    }
    return true;
}

const char *elf_names(Compiler *c, const char *path, const char *suffix, ElfNames *names)
{
    File f = { 0 };
    Elf64_Ehdr head;
    const char *why = read_file(c, path, &f);
    if (why)
        return why;
    if (f.bytes < sizeof head || memcmp(f.data, ELFMAG, SELFMAG) != 0)
        return f.bytes > 7 && memcmp(f.data, "!<arch>", 7) == 0
                   ? "it is a static library; what is looked at is the shared one, or a program's"
                   : "it is no shared library";
    memcpy(&head, f.data, sizeof head);
    const char *sections = part(&f, head.e_shoff, head.e_shnum, sizeof(Elf64_Shdr));
    if (head.e_ident[EI_CLASS] != ELFCLASS64 || head.e_ident[EI_DATA] != ELFDATA2LSB ||
        head.e_shentsize != sizeof(Elf64_Shdr))
        return "it is of another kind of machine";
    if (!sections)
        return "it is cut";
    for (int i = 0; i < head.e_shnum; i++) {
        Elf64_Shdr table, texts;
        memcpy(&table, sections + (size_t)i * sizeof table, sizeof table);
        if (table.sh_type != SHT_DYNSYM)
            continue;
        if (table.sh_link >= head.e_shnum)
            return "it is cut";
        memcpy(&texts, sections + (size_t)table.sh_link * sizeof texts, sizeof texts);
        if (!add_symbols(c, &f, &table, &texts, suffix, names))
            return "it is cut";
    }
    if (names->len)
        qsort(names->data, (size_t)names->len, sizeof *names->data, by_name);
    return NULL;
}
