// Meshes in words: tables for people, JSON for machines, and the config that asks for one. Where it
// stands: mesh cost, mesh search -> [here] -> `dslaunch plan`. Pure.
#pragma once

#include <span>
#include <string>

#include "base/text/json.h"
#include "plan/mesh/mesh_search.h"

namespace dslaunch::plan {

// One line a finding: sizes, ZeRO stage, recompute, schedule, micro batches, step, bubble, memory,
// bytes between hosts.
[[nodiscard]] std::string meshes_table(std::span<const MeshFinding> findings);
// Time of a step by what it goes to; bytes by axis; memory of each stage's ranks by tier.
[[nodiscard]] std::string mesh_details(const MeshFinding& finding);
// UNITS: bytes, seconds.
void mesh_json(const MeshFinding& finding, JsonWriter& json);

// Returns what a config must say for CHOICE, as one JSON object. ROWS: of a micro batch. SEGMENTS:
// of the model.
[[nodiscard]] std::string mesh_config(const MeshChoice& choice, int64_t rows, size_t segments);

}  // namespace dslaunch::plan
