#include "decoder/sample/sampler.h"

#include <cmath>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "base/error.h"
#include "support/catch.h"

namespace dslaunch::decoder {
namespace {

using Logits = std::vector<float>;

int32_t draw(Sampler& sampler, Logits logits, const std::vector<int32_t>& text = {}) {
    return sampler.next(logits, text);
}

// Returns the tokens of many draws, and how often each came.
std::map<int32_t, int> drawn(const SamplingOptions& options, const Logits& logits, int draws) {
    Sampler sampler(options);
    std::map<int32_t, int> counts;
    for (int i = 0; i < draws; ++i) ++counts[draw(sampler, logits)];
    return counts;
}

TEST_CASE("temperature 0 takes the likeliest token, and of equal ones the lowest") {
    Sampler sampler({.temperature = 0});
    CHECK(draw(sampler, {1, 3, 2}) == 1);
    CHECK(draw(sampler, {1, 3, 3}) == 1);
    CHECK(draw(sampler, {-5}) == 0);
}

TEST_CASE("draws follow the probabilities that temperature makes of logits") {
    // exp(ln 4 / 2) : exp(0) = 2 : 1.
    const Logits logits = {std::log(4.0F), 0};
    constexpr int kDraws = 20'000;
    const auto counts = drawn({.temperature = 2, .top_k = 0}, logits, kDraws);
    // Five standard deviations of a binomial with p = 2/3.
    const double bound = 5 * std::sqrt(kDraws * 2.0 / 9.0);
    CHECK(std::abs(counts.at(0) - kDraws * 2.0 / 3.0) < bound);
}

TEST_CASE("top-k, top-p and min-p leave out what is less likely") {
    // Probabilities 1/2, 1/4, 1/8, 1/8.
    const Logits logits = {std::log(8.0F), std::log(4.0F), std::log(2.0F), std::log(2.0F)};
    struct Row {
        SamplingOptions options;
        std::vector<int32_t> tokens;
    };
    const std::vector<Row> rows = {
        {{.temperature = 1, .top_k = 0}, {0, 1, 2, 3}},
        {{.temperature = 1, .top_k = 2}, {0, 1}},
        {{.temperature = 1, .top_k = 3}, {0, 1, 2}},  // of equal ones, the lowest id stays
        {{.temperature = 1, .top_k = 9}, {0, 1, 2, 3}},
        {{.temperature = 1, .top_k = 0, .top_p = 0.6}, {0, 1}},
        {{.temperature = 1, .top_k = 0, .top_p = 0.4}, {0}},
        {{.temperature = 1, .top_k = 0, .min_p = 0.4}, {0, 1}},
        {{.temperature = 1, .top_k = 0, .min_p = 1}, {0}},
        {{.temperature = 1, .top_k = 1}, {0}},
    };
    for (const Row& row : rows) {
        std::vector<int32_t> tokens;
        for (const auto& [token, count] : drawn(row.options, logits, 2000)) tokens.push_back(token);
        CHECK(tokens == row.tokens);
    }
}

TEST_CASE("a repetition penalty makes tokens of the text less likely, once each") {
    Sampler sampler({.temperature = 0, .repetition_penalty = 2});
    CHECK(draw(sampler, {4, 3}, {0}) == 1);           // 4 / 2 < 3
    CHECK(draw(sampler, {4, 1.5F}, {0, 0, 0}) == 0);  // 4 / 2 > 1.5: not divided three times
    CHECK(draw(sampler, {-1, -1.5F}, {0}) == 1);      // -1 * 2 < -1.5
    CHECK(draw(sampler, {4, 3}, {7, -1}) == 0);       // tokens without a logit
}

// Returns the likeliest token after TEXT with LOGITS 5, 4, 3, 2, 1 under RULES. The text has
// BOUNDS.
int32_t ruled(const TokenRules& rules, const std::vector<int32_t>& text, TextBounds bounds = {}) {
    SamplingOptions options;
    options.temperature = 0;
    options.rules = std::make_shared<const TokenRules>(rules);
    Sampler sampler(options, std::move(bounds));
    return draw(sampler, {5, 4, 3, 2, 1}, text);
}

TEST_CASE("rules on tokens hold as transformers' generate() has them") {
    const auto biased = [](std::vector<int32_t> tokens, float bias) {
        TokenRules rules;
        rules.biases.push_back({std::move(tokens), bias});
        return rules;
    };
    CHECK(ruled(biased({4}, 4.5F), {}) == 4);
    CHECK(ruled(biased({4}, 3.5F), {}) == 0);
    CHECK(ruled(biased({2, 4}, 9), {1, 2}) == 4);
    CHECK(ruled(biased({2, 4}, 9), {2, 1}) == 0);
    CHECK(ruled(biased({2, 4}, 9), {2}) == 0);  // a shorter text counts for nothing
    CHECK(ruled(biased({9}, 9), {}) == 0);
    TokenRules rules;
    rules.bad_words = {{0}, {2, 1}};
    CHECK(ruled(rules, {2, 2}) == 2);
    CHECK(ruled(rules, {2, 3}) == 1);
    CHECK(ruled(rules, {2, 3}, {{0}, {}}) == 0);  // an end token is not a bad word
    rules = {};
    rules.suppressed = {0, 1};
    rules.suppressed_first = {2};
    CHECK(ruled(rules, {1}) == 3);
    rules = {};
    rules.ngram = 2;
    CHECK(ruled(rules, {3, 0, 3}) == 1);
    CHECK(ruled(rules, {3, 0, 2}) == 0);
    rules.ngram = 1;
    CHECK(ruled(rules, {3, 0, 1}) == 2);
    rules = {};
    rules.last = {3, 4};
    CHECK(ruled(rules, {1}, {{}, 1}) == 3);
    CHECK(ruled(rules, {1}, {{}, 2}) == 0);
    rules = {};
    rules.suppressed = {0, 1, 2, 3, 4};  // no token is left: the first one
    CHECK(ruled(rules, {1}) == 0);
}

TEST_CASE("no end token comes before the least number of tokens") {
    for (const bool by_length : {false, true}) {
        SamplingOptions options;
        options.temperature = 0;
        (by_length ? options.length_min : options.tokens_min) = by_length ? 4 : 2;
        Sampler sampler(options, {{0, 2}, {}});
        std::vector<int32_t> text = {4, 4};
        for (int i = 0; i < 3; ++i) text.push_back(draw(sampler, {5, 4, 3, 2, 1}, text));
        CHECK(text == std::vector<int32_t>{4, 4, 1, 1, 0});
    }
}

TEST_CASE("penalties of OpenAI's protocol count the tokens that were made, not the prompt's") {
    SamplingOptions options;
    options.temperature = 0;
    options.presence_penalty = 0.25;
    options.frequency_penalty = 0.5;
    Sampler sampler(options);
    // The two best logits, draw by draw: 5 and 4.5; 5 - 0.75 = 4.25 and 4.5; 4.25 and 3.75; then
    // 3.75 (made twice) and 3.75.
    std::vector<int32_t> text = {0, 0, 0};
    for (int i = 0; i < 4; ++i) text.push_back(draw(sampler, {5, 4.5F, 1}, text));
    CHECK(text == std::vector<int32_t>{0, 0, 0, 0, 1, 0, 0});
}

TEST_CASE("equal seeds draw equal tokens, others draw others") {
    const Logits logits(100, 0.0F);
    const auto series = [&](uint64_t seed) {
        Sampler sampler({.temperature = 1, .top_k = 0, .seed = seed});
        std::vector<int32_t> tokens;
        for (int i = 0; i < 20; ++i) tokens.push_back(draw(sampler, logits));
        return tokens;
    };
    CHECK(series(3) == series(3));
    CHECK(series(3) != series(4));
}

TEST_CASE("options out of range are refused by name") {
    const std::vector<std::pair<SamplingOptions, const char*>> rows = {
        {{.temperature = -1}, "temperature"},
        {{.temperature = NAN}, "temperature"},
        {{.top_k = -1}, "top-k"},
        {{.top_p = 0}, "top-p"},
        {{.top_p = 1.1}, "top-p"},
        {{.min_p = 1.5}, "min-p"},
        {{.repetition_penalty = 0}, "repetition"},
    };
    for (const auto& [options, name] : rows)
        CHECK_THROWS_WITH(Sampler(options), Catch::Contains(name));
}

}  // namespace
}  // namespace dslaunch::decoder
