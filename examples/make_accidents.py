#!/usr/bin/env python3
"""Writes an invented table of road sections: how many accidents each had, and what it is like there.

    examples/make_accidents.py [--rows N] [--seed N] FILE.csv

The same seed gives the same file, byte for byte. The numbers come from the small model in accidents() below, so it
is known what an analysis should find: traffic density, rain on bad pavement and night hours cause most accidents,
fines prevent some, and traffic lights hardly matter. Like tables in real life this one went through a spreadsheet
that took decimal points for thousands separators; some cells are empty, and some lines are there twice.
"""
import argparse
import csv
import math
import random

COLUMNS = ["accidents", "traffic_fine_amount", "traffic_density", "traffic_lights", "pavement_quality",
           "urban_area", "average_speed", "rain_intensity", "vehicle_count", "time_of_day"]


def between(low, high, value):
    return max(low, min(high, value))


def poisson(rng, mean):
    """Knuth's method; good enough for means below a hundred."""
    floor, product, count = math.exp(-mean), rng.random(), 0
    while product > floor:
        product *= rng.random()
        count += 1
    return count


def road_section(rng):
    """One section of road in one hour; the columns hang together as they would on a real one."""
    urban = 1 if rng.random() < 0.65 else 0
    hour = rng.uniform(0, 24)
    rush = math.exp(-((hour - 8) / 1.8) ** 2) + math.exp(-((hour - 17.5) / 2.2) ** 2)
    density = between(0.2, 10, 2.2 + 1.3 * urban + 3.4 * rush + rng.gauss(0, 1.6))
    rain = between(0, 3, rng.expovariate(1 / 0.8))
    return {
        "traffic_fine_amount": rng.uniform(1, 10),
        "traffic_density": density,
        "traffic_lights": between(0.1, 10, 2 + 4 * urban + rng.gauss(0, 1.8)),
        "pavement_quality": between(0.2, 5, rng.gauss(3.0, 1.1)),
        "urban_area": urban,
        "average_speed": between(3, 49, 43 - 11 * urban - 1.8 * density - 2 * rain + rng.gauss(0, 5)),
        "rain_intensity": rain,
        "vehicle_count": between(10, 990, 90 * density + rng.gauss(0, 60)),
        "time_of_day": hour,
    }


def accidents(rng, road):
    """The truth that an analysis of the file should come near to."""
    wet_and_worn = road["rain_intensity"] / 3 * (5 - road["pavement_quality"]) / 4
    night = 0.5 + 0.5 * math.cos((road["time_of_day"] - 2) / 24 * 2 * math.pi)
    log_mean = (1.55
                + 0.16 * road["traffic_density"]
                + 1.10 * wet_and_worn
                + 0.45 * night
                + 0.012 * road["average_speed"]
                - 0.035 * road["traffic_fine_amount"]
                - 0.004 * road["traffic_lights"])
    return poisson(rng, math.exp(log_mean))


def as_text(rng, name, value):
    """The number as the spreadsheet exported it."""
    if name in ("accidents", "urban_area"):
        return str(value)
    if rng.random() < 0.006:
        return rng.choice(["", "", "n/a"])
    text = f"{value:.{rng.choice([2, 3, 4, 4, 4])}f}"
    whole, fraction = text.split(".")
    if rng.random() < 0.5:
        return text
    if whole == "0":
        text = fraction if len(fraction) < 4 else f"{fraction[0]}.{fraction[1:]}"  # 0.753 became 753, 0.5452 5.452
    elif len(whole) == 2 and len(fraction) == 4:
        text = f"{whole}{fraction[0]}.{fraction[1:]}"                             # 16.0432 became 160.432
    return text


def main():
    parser = argparse.ArgumentParser(description="Write an invented table of traffic accidents.")
    parser.add_argument("--rows", type=int, default=6000)
    parser.add_argument("--seed", type=int, default=2024)
    parser.add_argument("file")
    args = parser.parse_args()

    rng = random.Random(args.seed)
    with open(args.file, "w", newline="", encoding="ascii") as out:
        writer = csv.writer(out, lineterminator="\n")
        writer.writerow(COLUMNS)
        for _ in range(args.rows):
            road = road_section(rng)
            road["accidents"] = accidents(rng, road)
            line = [as_text(rng, name, road[name]) for name in COLUMNS]
            writer.writerow(line)
            if rng.random() < 0.01:
                writer.writerow(line)                      # pasted twice
    print(f"wrote {args.rows} road sections to {args.file}")


if __name__ == "__main__":
    main()
