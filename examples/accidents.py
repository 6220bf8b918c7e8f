"""Which factors contribute most to accident frequency?

This is the untrusted part of the demo: the sort of script that a language model writes and hutch runs. It reads
a CSV from /mnt/data, mends what can be mended, fits a model, prints the answer in plain words and leaves a chart
and a report in /mnt/data.
"""
import glob
import os
import sys

import matplotlib
matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.inspection import permutation_importance
from sklearn.metrics import mean_absolute_error
from sklearn.model_selection import train_test_split

DATA = sys.argv[1] if len(sys.argv) > 1 else "/mnt/data"
TARGET = "accidents"

# What each factor is called in a sentence, and the largest value that it can have.
FACTORS = {
    "traffic_density":     ("traffic density", 10),
    "traffic_fine_amount": ("the amount of traffic fines", 10),
    "traffic_lights":      ("the number of traffic lights", 10),
    "pavement_quality":    ("pavement quality", 5),
    "urban_area":          ("being in an urban area", 1),
    "average_speed":       ("average speed", 50),
    "rain_intensity":      ("rain intensity", 3),
    "vehicle_count":       ("the number of vehicles", 1000),
    "time_of_day":         ("the time of day", 24),
}


def read_table():
    for path in sorted(glob.glob(os.path.join(DATA, "*.csv"))):
        try:
            table = pd.read_csv(path, dtype=str, na_values=["n/a", "-", "?"], on_bad_lines="skip")
        except (ValueError, UnicodeError) as error:
            print(f"{os.path.basename(path)} is left out: {error}")
            continue
        if TARGET in table.columns:
            return os.path.basename(path), table
    sys.exit(f"no CSV with a column '{TARGET}' in {DATA}")


def mend(text, limit):
    """One column as numbers, and how many of them were mended.

    A spreadsheet that takes the decimal point for a thousands separator writes 0.753 as 753, 0.5452 as 5.452 and
    16.0432 as 160.432. The first kind is known by having no point where others have one, the rest by being larger
    than they can be."""
    values = pd.to_numeric(text, errors="coerce").replace([np.inf, -np.inf], np.nan)
    pointless = text.notna() & ~text.str.contains(".", regex=False, na=False)
    if limit == 1 or pointless.mean() > 0.5:
        pointless[:] = False                       # whole numbers are what this column holds
    values = values.mask(pointless, values / 10.0 ** text.str.len())
    too_large = values > limit
    mended = int((pointless | too_large).sum())
    while too_large.any():
        values = values.mask(too_large, values / 10)
        too_large = values > limit
    return values.where(values >= 0), mended


def clean(table):
    """The table made fit for a model, and one sentence for each thing that was done to it."""
    done = [f"{len(table)} rows read"]
    factors = [name for name in FACTORS if name in table.columns]
    if not factors:
        sys.exit("the table has none of the known factors: " + ", ".join(FACTORS))

    before = len(table)
    table = table[[TARGET] + factors].drop_duplicates()
    table[TARGET] = pd.to_numeric(table[TARGET], errors="coerce")
    table = table[(table[TARGET] >= 0) & (table[TARGET] < np.inf)].copy()
    done.append(f"{before - len(table)} rows dropped: there twice, or without a count of accidents")

    total = 0
    for name in factors:
        table[name], mended = mend(table[name], FACTORS[name][1])
        total += mended
    done.append(f"{total} numbers mended that had lost their decimal point")

    missing = int(table[factors].isna().sum().sum())
    table[factors] = table[factors].fillna(table[factors].median())
    done.append(f"{missing} empty cells filled with the median of their column")
    return table, factors, done


def effect(model, rows, name):
    """How the expected number of accidents changes, in words, between a low and a high value of one factor.

    Low and high are the 10th and 90th percentile; a factor that goes up and down again (the hours of a day) is
    taken between its worst and best value."""
    values = np.unique(np.quantile(rows[name], np.linspace(0.1, 0.9, 9)))
    curve = []
    for value in values:
        changed = rows.copy()
        changed[name] = value
        curve.append(model.predict(changed).mean())
    curve = np.array(curve)
    low, high = curve[0], curve[-1]
    spread = curve.max() - curve.min()
    if len(values) > 2 and spread > 2 * abs(high - low):
        best, worst = values[curve.argmin()], values[curve.argmax()]
        return (f"{100 * spread / curve.min():.0f}% more accidents around {worst:.1f} than around {best:.1f}", values,
                curve)
    change = f"{abs(100 * (high / low - 1)):.0f}% {'more' if high > low else 'fewer'} accidents"
    if len(values) == 2:
        return f"{change} where that is so", values, curve
    return f"{change} where it is high than where it is low", values, curve


def chart(path, ranking, curves, source):
    fig, (left, right) = plt.subplots(1, 2, figsize=(12, 5.5), width_ratios=[3, 2])
    shown = ranking[::-1]
    left.barh([row["label"] for row in shown], [row["share"] for row in shown],
              xerr=[row["error"] for row in shown], color="#3b6ea5", ecolor="#888888")
    left.set_xlabel("share of all influence (%)")
    left.set_title("What accident frequency depends on")
    for row in ranking[:3]:
        values, curve = curves[row["name"]]
        right.plot(np.linspace(10, 90, len(values)), curve, marker="o", label=row["label"])
    right.set_xlabel("percentile of the factor")
    right.set_ylabel("expected accidents")
    right.set_title("The three strongest factors")
    right.legend(frameon=False)
    for axis in (left, right):
        axis.spines[["top", "right"]].set_visible(False)
    fig.suptitle(source, fontsize=9, color="#666666")
    fig.tight_layout()
    fig.savefig(path, dpi=110)


def main():
    source, table = read_table()
    table, factors, done = clean(table)
    if len(table) < 50 or table[TARGET].max() == 0:
        sys.exit(f"{source}: {len(table)} usable rows are too few to learn from")
    train, test = train_test_split(table, test_size=0.3, random_state=0)
    model = HistGradientBoostingRegressor(loss="poisson", max_iter=120, learning_rate=0.06, max_leaf_nodes=15,
                                          min_samples_leaf=40, random_state=0)
    model.fit(train[factors], train[TARGET])

    explained = model.score(test[factors], test[TARGET])
    error = mean_absolute_error(test[TARGET], model.predict(test[factors]))
    guess = mean_absolute_error(test[TARGET], np.full(len(test), train[TARGET].median()))
    found = permutation_importance(model, test[factors], test[TARGET], n_repeats=5, random_state=0)

    total = found.importances_mean.clip(0).sum() or 1.0
    ranking, curves = [], {}
    for i in np.argsort(-found.importances_mean):
        name = factors[i]
        words, values, curve = effect(model, test[factors], name)
        curves[name] = (values, curve)
        ranking.append({"name": name, "label": FACTORS[name][0], "words": words,
                        "share": 100 * max(0.0, found.importances_mean[i]) / total,
                        "error": 100 * found.importances_std[i] / total})

    lines = [f"Which factors contribute most to accident frequency? ({source}, {len(table)} road sections)", ""]
    for place, row in enumerate([row for row in ranking if row["share"] >= 2][:5], 1):
        lines.append(f"{place}. {row['label']} ({row['share']:.0f}% of all influence): {row['words']}")
    weak = [row["label"] for row in ranking if row["share"] < 2]
    if weak:
        lines += ["", "Hardly any influence: " + ", ".join(weak) + "."]
    lines += ["", f"The model is off by {error:.1f} accidents on average ({guess:.1f} when it always guesses the median) "
                  f"and explains {100 * max(0.0, explained):.0f}% of the differences between road sections it has not seen."]
    if explained < 0.1:
        lines.append("That is little: take the order of the factors as a hint, not as a finding.")
    print("\n".join(lines))

    chart(os.path.join(DATA, "accident_factors.png"), ranking, curves, source)
    with open(os.path.join(DATA, "report.md"), "w", encoding="utf-8") as out:
        out.write("# " + lines[0] + "\n\n" + "\n".join(lines[2:]) + "\n\n![factors](accident_factors.png)\n\n")
        out.write("| factor | share of all influence | what goes with it |\n|---|---|---|\n")
        for row in ranking:
            out.write(f"| {row['label']} | {row['share']:.1f}% ± {row['error']:.1f} | {row['words']} |\n")
        out.write("\n## How\n\n" + "\n".join(f"- {sentence}" for sentence in done) + "\n")
        out.write("- gradient boosting with a Poisson loss, fitted on 70% of the rows; a factor's influence is how much "
                  "worse the model predicts the other 30% when that column is shuffled (5 times)\n"
                  "- these are associations in the table, not proof of causes\n")
    print("\nWritten: accident_factors.png, report.md")


if __name__ == "__main__":
    main()
