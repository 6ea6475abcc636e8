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

// The formulas for the frequencies, by their names in transformers.
enum class RopeKind { kDefault, kLinear, kDynamic, kLlama3, kYarn, kLong, kProportional };

// Rotary positions: how far each pair of a head's elements rotates per position.
struct Rope {
    RopeKind kind = RopeKind::kDefault;
    double theta = 10000;
    int64_t width = 0;  // how many of a head's elements rotate; even
    double factor = 1;
    double low_frequency_factor = 1;   // kLlama3
    double high_frequency_factor = 4;  // kLlama3
    int64_t original_context = 0;      // first training's context; unused by kDefault, kLinear and
                                       // kProportional
    int64_t turning_pairs = 0;         // kProportional: only these first pairs rotate
    double beta_fast = 32;             // kYarn
    double beta_slow = 1;              // kYarn
    bool truncate = true;              // kYarn
    double magnitude = 1;              // sines and cosines are multiplied by this
    std::vector<double> short_factors, long_factors;  // kLong, one for each pair
};

// The angle by which each pair of a head's elements rotates per position, in radians. SHAPE: [width
// / 2]. All are empty for learned positions.
struct RotaryFrequencies {
    std::vector<double> all;     // of layers that attend to all positions
    std::vector<double> late;    // for sequences longer than the context of the first training; if
                                 // empty, `all` is used
    std::vector<double> window;  // of layers with a window; if empty, `all` and `late` are used
};

// Returns how far each pair rotates per position in a sequence of LENGTH positions. If LENGTH
// exceeds the context of the first training, the base grows with it. REQUIRES: ROPE is kDynamic.
[[nodiscard]] std::vector<double> dynamic_frequencies(const Rope& rope, int64_t length);

// The values of the surrounding config, which are used for fields that the rope object leaves out.
struct RopeDefaults {
    double theta = 10000;
    std::optional<double> part = {};  // rotating share of a head; whole heads if not set
    int64_t head_width = 0;
    int64_t context = 0;
    int64_t original_context = 0;
    bool original_counts = false;  // original_context counts, not the rope's own value
};

// Returns the share of a head's elements that rotate: partial_rotary_factor in PLACE, or AROUND if
// PLACE has no such field. Throws Error{kInput} naming the field if its value is not above 0 and at
// most 1. A family that always rotates whole heads passes no AROUND. For such a family any value
// but 1 is an error, because transformers would ignore it.
[[nodiscard]] std::optional<double> rotary_share(const JsonPlace& place,
                                                 std::optional<double> around);

// Reads PLACE, an object with rope_type and the formula's numbers; null if there is none. Throws
// Error{kInput} naming the field if the formula is unknown, if the number of factors is wrong, if
// the number of rotating elements is odd, or if PLACE has an object for each kind of layer although
// one formula is expected.
[[nodiscard]] Rope read_rope(const JsonPlace* place, const RopeDefaults& defaults);

}  // namespace dslaunch::storage
