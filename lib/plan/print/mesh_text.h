// Meshes in words: tables for people, JSON for machines, and the config that asks for one. Data
// path: mesh cost, mesh search -> [here] -> `dslaunch plan`. Pure.
#pragma once

#include <span>
#include <string>

#include "base/text/json.h"
#include "plan/choose/mesh_search.h"

namespace dslaunch::plan {

// Returns one line per finding: sizes, ZeRO stage, recompute, schedule, micro batches, step,
// bubble, memory, bytes between hosts. COLUMNS: the terminal's, 0 for no limit; cells without room
// go into a second table below.
[[nodiscard]] std::string meshes_table(std::span<const MeshFinding> findings, size_t columns);
// Returns a step's time by kind of work, bytes by axis, memory of each stage's ranks by tier.
[[nodiscard]] std::string mesh_details(const MeshFinding& finding);
// Writes FINDING as JSON. UNITS: bytes, seconds.
void mesh_json(const MeshFinding& finding, JsonWriter& json);

// Returns the config for CHOICE, as one JSON object. ROWS are of a micro batch, SEGMENTS of
// the model.
[[nodiscard]] std::string mesh_config(const MeshChoice& choice, int64_t rows, size_t segments);

}  // namespace dslaunch::plan
