#include "storage/huggingface/rope_config.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/text.h"
#include "base/text/json_place.h"
#include "storage/huggingface/config_values.h"

namespace dslaunch::storage {

namespace {

constexpr const char* kShare = "partial_rotary_factor";

std::vector<double> factors_at(const JsonPlace& rope, const char* key, int64_t width) {
    std::vector<double> factors;
    rope.at(key).for_elements([&](const JsonPlace& element) {
        if (!(element.number() > 0)) element.refuse("must be above 0");
        factors.push_back(element.number());
    });
    if (std::ssize(factors) * 2 != width)
        rope.at(key).refuse(fmt::format(
            "has {} factors, expected {}: one for each pair of the {} rotated elements of a head",
            factors.size(), width / 2, width));
    return factors;
}

double yarn_magnitude(double factor, double scale) {
    return factor <= 1 ? 1.0 : 0.1 * scale * std::log(factor) + 1.0;
}

// Reads the scaling of positions from ROPE; TYPE is the name of the formula.
void read_scaling(const JsonPlace& rope, const std::string& type, const RopeDefaults& defaults,
                  Rope& into) {
    if (type == "default") return;
    into.original_context = defaults.original_context;
    if (!defaults.original_counts)
        into.original_context =
            size_or(rope, "original_max_position_embeddings", defaults.original_context);
    if (type == "linear") {
        into.kind = RopeKind::kLinear;
        into.factor = positive_or(rope, "factor", 1);
    } else if (type == "dynamic") {
        into.kind = RopeKind::kDynamic;
        into.factor = positive_or(rope, "factor", 1);
        into.original_context = defaults.context;
        if (into.width <= 2)
            rope.refuse("the rope type `dynamic` needs more than one rotated pair in each head");
    } else if (type == "proportional") {
        into.kind = RopeKind::kProportional;
        into.factor = positive_or(rope, "factor", 1);
        const double share = number_or(rope, kShare, 1);
        if (share < 0 || share > 1) rope.at(kShare).refuse("must be from 0 to 1");
        into.turning_pairs = static_cast<int64_t>(share * static_cast<double>(into.width) / 2);
    } else if (type == "llama3") {
        into.kind = RopeKind::kLlama3;
        into.factor = positive_or(rope, "factor", 1);
        into.low_frequency_factor = positive_or(rope, "low_freq_factor", 1);
        into.high_frequency_factor = positive_or(rope, "high_freq_factor", 4);
        if (into.high_frequency_factor <= into.low_frequency_factor)
            rope.at("high_freq_factor").refuse("must be above low_freq_factor");
    } else if (type == "yarn" && !rope.has("short_factor")) {
        into.kind = RopeKind::kYarn;
        const double stretched =
            static_cast<double>(defaults.context) / static_cast<double>(into.original_context);
        into.factor = positive_or(rope, "factor", stretched);
        into.beta_fast = positive_or(rope, "beta_fast", 32);
        into.beta_slow = positive_or(rope, "beta_slow", 1);
        into.truncate = flag_or(rope, "truncate", true);
        const double scale = number_or(rope, "mscale", 0);
        const double scale_of_all = number_or(rope, "mscale_all_dim", 0);
        into.magnitude = yarn_magnitude(into.factor, 1);
        if (scale != 0 && scale_of_all != 0)
            into.magnitude =
                yarn_magnitude(into.factor, scale) / yarn_magnitude(into.factor, scale_of_all);
        into.magnitude = number_or(rope, "attention_factor", into.magnitude);
    } else if (type == "longrope" || type == "su" || type == "yarn") {
        into.kind = RopeKind::kLong;
        into.short_factors = factors_at(rope, "short_factor", into.width);
        into.long_factors = factors_at(rope, "long_factor", into.width);
        const double stretched =
            static_cast<double>(defaults.context) / static_cast<double>(into.original_context);
        const double factor = number_or(rope, "factor", stretched);
        const double grown =
            factor <= 1 ? 1.0
                        : std::sqrt(1 + std::log(factor) /
                                            std::log(static_cast<double>(into.original_context)));
        into.magnitude = number_or(rope, "attention_factor", grown);
    } else {
        rope.refuse(
            fmt::format("the rope type `{}` is not supported by this version; supported are "
                        "default, linear, dynamic, llama3, yarn, longrope and proportional",
                        printable(type)));
    }
}

// Throws Error{kInput} if a member of ROPE is an object, that is, settings for one kind of layers.
// transformers reads such objects only in families that have a formula for each kind.
void require_flat(const JsonPlace& rope) {
    rope.for_members([&](const std::string& name, const JsonPlace& value) {
        if (value.is_object())
            rope.refuse(fmt::format(
                "`{}` has its own settings, but all layers of this model family share one rope",
                printable(name)));
    });
}

}  // namespace

std::optional<double> rotary_share(const JsonPlace& place, std::optional<double> around) {
    if (!place.has(kShare)) return around;
    const double share = positive_or(place, kShare, 1);
    if (share > 1) place.at(kShare).refuse("must be above 0 and at most 1");
    if (!around && share != 1)
        place.at(kShare).refuse(
            "this model family rotates whole heads: remove this field, or set it to 1");
    return around ? std::optional(share) : std::nullopt;
}

Rope read_rope(const JsonPlace* place, const RopeDefaults& defaults) {
    Rope rope;
    std::string type = "default";
    rope.theta = defaults.theta;
    std::optional<double> part = defaults.part;
    if (place != nullptr) {
        require_flat(*place);
        rope.theta = positive_or(*place, "rope_theta", rope.theta);
        if (place->has("type")) type = place->at("type").text();
        if (place->has("rope_type")) type = place->at("rope_type").text();
        // A partial_rotary_factor of the type `proportional` does not change the width, because
        // whole heads rotate. It says how many pairs of elements have an angle other than 0.
        if (type != "proportional") part = rotary_share(*place, part);
        if (type == "proportional" && part)
            place->refuse(
                "the rope type `proportional` is only for model families that rotate whole heads");
    }
    rope.width = static_cast<int64_t>(static_cast<double>(defaults.head_width) * part.value_or(1));
    if (rope.width < 2 || rope.width % 2 != 0)
        fail(ExitCode::kInput,
             "rope rotates {} of the {} elements of a head, but the number of rotated elements "
             "must be even and at least 2",
             rope.width, defaults.head_width);
    if (place == nullptr) return rope;
    read_scaling(*place, type, defaults, rope);
    if (!std::isfinite(rope.magnitude))
        place->refuse("its numbers make the factor of the sines and cosines infinite or NaN");
    return rope;
}

std::vector<double> dynamic_frequencies(const Rope& rope, int64_t length) {
    const auto width = static_cast<double>(rope.width);
    const auto context = static_cast<double>(rope.original_context);
    const double stretch =
        rope.factor * static_cast<double>(std::max(length, rope.original_context)) / context -
        (rope.factor - 1);
    const double base = rope.theta * std::pow(stretch, width / (width - 2));
    std::vector<double> turns;
    for (int64_t i = 0; i < rope.width; i += 2)
        turns.push_back(1 / std::pow(base, static_cast<double>(i) / width));
    return turns;
}

}  // namespace dslaunch::storage
