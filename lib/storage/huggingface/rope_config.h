// Rotary positions as a config.json describes them. Source of the formulas: modeling_rope_utils.py
// of transformers 5.23. Data path: config.json -> [here] -> transformer_config.h. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

namespace dslaunch {
class JsonPlace;
}

namespace dslaunch::storage {

enum class RopeKind { kDefault, kLinear, kDynamic, kLlama3, kYarn, kLong, kProportional };

// Rotary positions: how far each pair of a head's elements turns per position.
struct Rope {
    RopeKind kind = RopeKind::kDefault;
    double theta = 10000;
    int64_t width = 0;  // elements of a head that turn, even; the others stay as they are
    double factor = 1;
    double low_frequency_factor = 1;   // kLlama3
    double high_frequency_factor = 4;  // kLlama3
    int64_t original_context = 0;      // of the first training; not of kDefault, kLinear and
                                       // kProportional
    int64_t turning_pairs = 0;         // kProportional: the first ones; the others do not turn
    double beta_fast = 32;             // kYarn
    double beta_slow = 1;              // kYarn
    bool truncate = true;              // kYarn
    double magnitude = 1;              // sines and cosines are multiplied by this
    std::vector<double> short_factors, long_factors;  // kLong, one for each pair
};

// The angle by which each pair of a head's elements turns per position, in radians. SHAPE: [width /
// 2]. All are empty for learned positions.
struct RotaryFrequencies {
    std::vector<double> all;   // of layers that see all positions
    std::vector<double> late;  // the same in sequences beyond the first training's context; empty:
                               // no others
    std::vector<double> window;  // of layers with a window; empty: `all` and `late` hold
};

// Returns how far each pair turns in a sequence of LENGTH positions: the base grows with a length
// beyond the first training's. REQUIRES: ROPE is kDynamic.
[[nodiscard]] std::vector<double> dynamic_frequencies(const Rope& rope, int64_t length);

// The values of the surrounding config, which a rope takes if it does not say them.
struct RopeDefaults {
    double theta = 10000;
    std::optional<double> part = {};  // the share of a head that turns; nothing: whole heads always
                                      // do
    int64_t head_width = 0;
    int64_t context = 0;
    int64_t original_context = 0;
    bool original_counts = false;  // true: even if the rope has another one
};

// Returns the share of a head that turns by PLACE's partial_rotary_factor, or else AROUND, which is
// nothing for families whose heads turn whole. Throws Error{kInput} naming the field if it is not a
// share, or not 1 for such a family: transformers gives that no meaning.
[[nodiscard]] std::optional<double> rotary_share(const JsonPlace& place,
                                                 std::optional<double> around);

// Reads PLACE, an object with rope_type and the formula's numbers; null: there is none. Throws
// Error{kInput} naming the field: an unknown formula, factors that do not fit, an odd number of
// elements that turn, numbers for kinds of layers although one formula is expected.
[[nodiscard]] Rope read_rope(const JsonPlace* place, const RopeDefaults& defaults);

}  // namespace dslaunch::storage
