#include "storage/huggingface/generation_config.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>

#include "base/text/json_place.h"
#include "base/text_bytes.h"
#include "storage/files/mapped_file.h"

namespace dslaunch::storage {

namespace {

using Json = JsonPlace::Json;

// Keys that have no effect on the texts that this program makes. They concern caches, the form of
// the result, and beams and assistant models, which this program does not use.
constexpr std::array<std::string_view, 40> kWithoutEffect = {
    "_from_model_config",
    "transformers_version",
    "pad_token_id",
    "decoder_start_token_id",
    "use_cache",
    "cache_implementation",
    "cache_config",
    "return_legacy_cache",
    "prefill_chunk_size",
    "low_memory",
    "compile_config",
    "disable_compile",
    "return_dict_in_generate",
    "output_attentions",
    "output_hidden_states",
    "output_scores",
    "output_logits",
    "length_penalty",
    "early_stopping",
    "diversity_penalty",
    "renormalize_logits",
    "remove_invalid_values",
    "is_assistant",
    "num_assistant_tokens",
    "num_assistant_tokens_schedule",
    "assistant_confidence_threshold",
    "assistant_early_exit",
    "assistant_lookbehind",
    "target_lookbehind",
    "max_matching_ngram_size",
    "prompt_lookup_num_tokens",
    "chat_format",
    "max_window_size",
    "continuous_batching_config",
    "user_token_id",
    "assistant_token_id",
    "trust_remote_code",
    "max_cache_len",
    "speculation_type",
    "assistant_ensemble_weight",
};

// A key that is not supported here, with the value that switches it off.
struct Neutral {
    std::string_view key;
    double number;
};
constexpr std::array<Neutral, 14> kNeutral = {{{"num_beams", 1},
                                               {"use_mtp", 0},
                                               {"num_beam_groups", 1},
                                               {"num_return_sequences", 1},
                                               {"penalty_alpha", 0},
                                               {"typical_p", 1},
                                               {"top_h", 1},
                                               {"epsilon_cutoff", 0},
                                               {"eta_cutoff", 0},
                                               {"encoder_repetition_penalty", 1},
                                               {"encoder_no_repeat_ngram_size", 0},
                                               {"guidance_scale", 1},
                                               {"token_healing", 0},
                                               {"max_time", 0}}};

class ConfigReader {
  public:
    ConfigReader(const std::string& path, const Json& json) : json_(json), place_(path, json) {}

    GenerationConfig run() {
        GenerationConfig config;
        read_tokens(config);
        read_sampling(config);
        read_lengths(config);
        read_rules(config);
        for (const auto& [key, value] : json_.items())
            if (is_not_done(key, value)) config.not_done.push_back(key + " = " + value.dump());
        return config;
    }

    void read_tokens(GenerationConfig& config) {
        config.eos_tokens = tokens("eos_token_id");
        const std::vector<int32_t> first = tokens("bos_token_id");
        if (!first.empty()) config.bos_token = first.front();
    }

  private:
    void read_sampling(GenerationConfig& config) {
        if (has("do_sample")) config.do_sample = place_.at("do_sample").boolean();
        config.temperature = number("temperature", 0, 100);
        config.top_p = number("top_p", 0, 1);
        // transformers always keeps at least one token.
        if (config.top_p == 0) config.top_p = 1e-9;
        config.min_p = number("min_p", 0, 1);
        config.repetition_penalty = number("repetition_penalty", 1e-6, 1e6);
        config.top_k = count("top_k");
    }

    void read_lengths(GenerationConfig& config) {
        config.max_new_tokens = count("max_new_tokens", 1);
        config.max_length = count("max_length");
        config.min_new_tokens = count("min_new_tokens");
        config.min_length = count("min_length");
        config.no_repeat_ngram_size = count("no_repeat_ngram_size");
        if (!has("stop_strings")) return;
        const auto add = [&](const JsonPlace& stop) {
            if (stop.text().empty()) stop.refuse("is empty: every text would end at once");
            config.stop_strings.push_back(stop.text());
        };
        if (json_.at("stop_strings").is_array()) {
            place_.at("stop_strings").for_elements(add);
        } else {
            add(place_.at("stop_strings"));
        }
    }

    void read_rules(GenerationConfig& config) {
        config.forced_eos_tokens = tokens("forced_eos_token_id");
        config.suppress_tokens = tokens("suppress_tokens");
        config.begin_suppress_tokens = tokens("begin_suppress_tokens");
        if (has("bad_words_ids"))
            place_.at("bad_words_ids").for_elements([&](const JsonPlace& word) {
                config.bad_words.push_back(sequence(word));
            });
        if (!has("sequence_bias")) return;
        place_.at("sequence_bias").for_elements([&](const JsonPlace& pair) {
            std::vector<JsonPlace> both;
            pair.for_elements([&](const JsonPlace& one) { both.push_back(one); });
            if (both.size() != 2) pair.refuse("must be a pair of a list of tokens and a number");
            // Larger values would make logits infinite, and no token can be drawn from such logits.
            constexpr double kBiasMax = 1e30;
            if (!(std::abs(both[1].number()) <= kBiasMax))
                both[1].refuse(fmt::format("must be between -{0} and {0}", kBiasMax));
            config.sequence_bias.emplace_back(sequence(both[0]), both[1].number());
        });
    }

    [[nodiscard]] bool has(const char* key) {
        read_.push_back(key);
        return place_.has(key);
    }
    [[nodiscard]] std::optional<double> number(const char* key, double least, double most) {
        if (!has(key)) return std::nullopt;
        const double number = place_.at(key).number();
        if (!(number >= least && number <= most))
            place_.at(key).refuse(
                fmt::format("is {}, but must be between {} and {}", number, least, most));
        return number;
    }
    [[nodiscard]] std::optional<int64_t> count(const char* key, int64_t least = 0) {
        if (!has(key)) return std::nullopt;
        const int64_t count = place_.at(key).integer();
        if (count < least) place_.at(key).refuse(fmt::format("is below {}", least));
        return count;
    }
    [[nodiscard]] static int32_t token(const JsonPlace& place) {
        const int64_t token = place.integer();
        if (token < 0 || token > INT32_MAX) place.refuse("is not a token");
        return static_cast<int32_t>(token);
    }
    [[nodiscard]] static std::vector<int32_t> sequence(const JsonPlace& place) {
        std::vector<int32_t> tokens;
        place.for_elements([&](const JsonPlace& one) { tokens.push_back(token(one)); });
        if (tokens.empty()) place.refuse("has no token");
        return tokens;
    }
    // Reads one token, several, or none.
    [[nodiscard]] std::vector<int32_t> tokens(const char* key) {
        std::vector<int32_t> tokens;
        if (!has(key)) return tokens;
        if (!json_.at(key).is_array()) return {token(place_.at(key))};
        place_.at(key).for_elements([&](const JsonPlace& one) { tokens.push_back(token(one)); });
        return tokens;
    }

    [[nodiscard]] bool is_not_done(const std::string& key, const Json& value) const {
        if (value.is_null() || std::ranges::find(read_, key) != read_.end() ||
            std::ranges::find(kWithoutEffect, key) != kWithoutEffect.end())
            return false;
        if ((value.is_array() || value.is_object()) && value.empty()) return false;
        const auto neutral = std::ranges::find(kNeutral, key, &Neutral::key);
        if (neutral == kNeutral.end()) return true;
        if (value.is_boolean()) return value.get<bool>() != (neutral->number != 0);
        return !value.is_number() || value.get<double>() != neutral->number;
    }

    const Json& json_;
    JsonPlace place_;
    std::vector<std::string_view> read_;
};

// Returns READ's result for FOLDER's file NAME, or an empty config if there is no such file.
template <typename Read>
GenerationConfig config_in(const std::string& folder, const char* name, const Read& read) {
    const std::string path = fmt::format("{}/{}", folder, name);
    std::error_code unreadable;
    if (!std::filesystem::exists(path, unreadable)) return {};
    const MappedFile file(path);
    return read(path, text_in(file.bytes()));
}

}  // namespace

GenerationConfig parse_generation_config(const std::string& path, std::string_view text) {
    const Json json = JsonPlace::parse(path, text);
    if (!json.is_object()) JsonPlace(path, json).refuse("is not an object");
    return ConfigReader(path, json).run();
}

GenerationConfig read_generation_config(const std::string& folder) {
    return config_in(folder, "generation_config.json", parse_generation_config);
}

GenerationConfig read_tokens_of_config(const std::string& folder) {
    return config_in(folder, "config.json", [](const std::string& path, std::string_view text) {
        const Json json = JsonPlace::parse(path, text);
        GenerationConfig config;
        if (!json.is_object()) return config;
        ConfigReader(path, json).read_tokens(config);
        const auto text_part = json.find("text_config");
        if (config.eos_tokens.empty() && text_part != json.end() && text_part->is_object())
            ConfigReader(path, *text_part).read_tokens(config);
        return config;
    });
}

std::vector<int32_t> end_tokens_of(const std::string& folder) {
    std::vector<int32_t> tokens = read_generation_config(folder).eos_tokens;
    return tokens.empty() ? read_tokens_of_config(folder).eos_tokens : tokens;
}

}  // namespace dslaunch::storage
