# Sums the lines `NAME: N passed, N failed, N skipped` of one.sh; prints the three numbers. failed may be set
# to begin with.
/: [0-9]+ passed, [0-9]+ failed, [0-9]+ skipped$/ {
    passed += $(NF - 5)
    failed += $(NF - 3)
    skipped += $(NF - 1)
}
END { print passed + 0, failed + 0, skipped + 0 }
