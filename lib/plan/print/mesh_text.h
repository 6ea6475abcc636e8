// Meshes as tables for people, as JSON for machines, and as the config that requests a mesh. Data
// path: mesh cost, mesh search -> [here] -> `dslaunch plan`. Pure.
#pragma once

#include <span>
#include <string>

#include "base/text/json.h"
#include "plan/choose/mesh_search.h"

namespace dslaunch::plan {

// Returns one line per finding: sizes, ZeRO stage, recomputation, schedule, micro batches, step,
// bubble, memory, bytes between hosts. COLUMNS is the width of the terminal, 0 for no limit. Cells
// that do not fit are moved to a second table below.
[[nodiscard]] std::string meshes_table(std::span<const MeshFinding> findings, size_t columns);
// Returns a text about FINDING: the time of each kind of work in a step, the bytes on each axis,
// and the memory that the ranks of each stage need in each tier.
[[nodiscard]] std::string mesh_details(const MeshFinding& finding);
// Writes FINDING as JSON. UNITS: bytes, seconds.
void mesh_json(const MeshFinding& finding, JsonWriter& json);

// Returns the config for CHOICE as one JSON object. ROWS is the number of rows in a micro batch,
// SEGMENTS the number of segments in the model.
[[nodiscard]] std::string mesh_config(const MeshChoice& choice, int64_t rows, size_t segments);

}  // namespace dslaunch::plan
