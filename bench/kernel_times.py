#!/usr/bin/env python3
"""Sums what Nsight Compute wrote (--csv --print-units base) by kernel. In: the file. Out: a line for each kernel, in the order of
their first launches: launches, microseconds of all, other metrics of all in the order of their names."""
import csv
import math
import sys

kernels, names = {}, set()
with open(sys.argv[1]) as file:
    lines = [line for line in file if line.startswith('"')]
for row in csv.DictReader(lines):
    kernel = kernels.setdefault(row["Kernel Name"].split("(")[0], {"ids": set()})
    kernel["ids"].add(row["ID"])
    metric = row["Metric Name"]
    names.add(metric)
    value = float(row["Metric Value"].replace(",", ""))
    if math.isfinite(value):
        kernel[metric] = kernel.get(metric, 0) + value
    else:
        kernel["refused"] = True        # a cooperative kernel of clusters, for one
time = "gpu__time_duration.sum"
names = sorted(names - {time})
if names:
    print("     " + " " * 13 + "  ".join(names))
for kernel, sums in kernels.items():
    others = "".join(f"{sums.get(n, 0):14.4g}" for n in names)
    note = "  not measured: ncu could not launch it" if "refused" in sums else ""
    print(f"{len(sums['ids']):6} {sums.get(time, 0) / 1e3:11.1f}  {others}  {kernel[:90]}{note}")
print(f"{sum(len(k['ids']) for k in kernels.values()):6} {sum(k.get(time, 0) for k in kernels.values()) / 1e3:11.1f}  in all")
sys.exit(not kernels)
