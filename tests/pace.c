/* pace.c: how fast this machine does what a compiler does: a fixed piece of work that shares no code with
 * cellc. It makes a graph of nodes in fresh memory, finds equal ones by their hash, walks it several times
 * in another order and prints it. Out: the least CPU time of eight rounds, in microseconds. (tests/pace.sh)
 * */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

typedef struct Node Node;
struct Node {
    uint32_t op, uses;
    uint64_t hash;
    Node *a, *b;
    char name[24];
};

enum { NODES = 60000, SLOTS = 1 << 17, WALKS = 6, ROOM = 8 << 20 };

static uint32_t state;

static void *fresh(size_t n, size_t size)
{
    void *p = calloc(n, size);
    if (!p)
        exit(1);
    return p;
}

static uint32_t draw(uint32_t n)
{
    state = state * 1664525u + 1013904223u;
    return (state >> 8) % n;
}

static Node *find(Node **slots, uint64_t hash, uint32_t op, const Node *a, const Node *b)
{
    for (uint64_t i = hash % SLOTS;; i = (i + 1) % SLOTS) {
        Node *at = slots[i];
        if (!at || (at->hash == hash && at->op == op && at->a == a && at->b == b))
            return at;
    }
}

static void put(Node **slots, Node *node)
{
    uint64_t i = node->hash % SLOTS;
    while (slots[i])
        i = (i + 1) % SLOTS;
    slots[i] = node;
}

static Node *make(Node **slots, Node **all, int n)
{
    Node *a = n ? all[draw((uint32_t)n)] : NULL, *b = n ? all[draw((uint32_t)n)] : NULL;
    uint32_t op = draw(24);
    uint64_t hash = (op + 1) * 0x9e3779b97f4a7c15u ^ (a ? a->hash * 31 : 7) ^ (b ? b->hash * 131 : 11);
    Node *node = find(slots, hash, op, a, b);
    if (node)
        return node;
    node = fresh(1, sizeof *node);          /* and stays, so that the next round's memory is fresh, too */
    *node = (Node){.op = op, .hash = hash, .a = a, .b = b};
    snprintf(node->name, sizeof node->name, "v%d_%u", n, op);
    put(slots, node);
    return node;
}

static size_t work(void)
{
    Node **slots = fresh(SLOTS, sizeof *slots), **all = fresh(NODES, sizeof *all);
    char *text = fresh(1, ROOM);
    size_t length = 0;
    state = 1;
    for (int i = 0; i < NODES; i++)
        all[i] = make(slots, all, i);
    for (int walk = 0; walk < WALKS; walk++)
        for (int i = NODES - 1; i > 0; i--) {
            Node *node = all[i];
            if (node->a && strcmp(node->a->name, node->name) < 0)
                node->a->uses++;
            if (node->b)
                node->b->uses += node->uses & 1;
        }
    for (int i = 1; i < NODES; i++)
        length += (size_t)snprintf(text + length, ROOM - length, "    double %s = op%u(%s, %s); /* %u */\n", all[i]->name,
                                   all[i]->op, all[i]->a ? all[i]->a->name : "0", all[i]->b ? all[i]->b->name : "0",
                                   all[i]->uses);
    free(text);
    free(slots);
    free(all);
    return length;
}

int main(void)
{
    double least = 1e9;
    size_t length = 0;
    for (int i = 0; i < 8; i++) {
        clock_t before = clock();
        length += work();
        double took = (double)(clock() - before) * 1e6 / CLOCKS_PER_SEC;
        least = took < least ? took : least;
    }
    printf("%.0f\n", least);
    return length == 0;
}
