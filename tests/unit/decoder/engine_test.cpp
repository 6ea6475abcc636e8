#include "decoder/engine/engine.h"

#include <algorithm>
#include <map>
#include <random>
#include <vector>

#include "base/error.h"
#include "support/catch.h"
#include "support/fake_runner.h"

namespace dslaunch::decoder {
namespace {

using test::continuation;
using test::FakeRunner;
using test::kFakeVocabulary;

Request request_of(std::vector<int32_t> prompt, int64_t tokens) {
    Request request;
    request.prompt = std::move(prompt);
    request.tokens_max = tokens;
    request.sampling.temperature = 0;
    return request;
}

std::vector<int32_t> random_prompt(std::mt19937& random, int64_t length) {
    std::vector<int32_t> prompt;
    for (int64_t i = 0; i < length; ++i)
        prompt.push_back(static_cast<int32_t>(random() % kFakeVocabulary));
    return prompt;
}

std::map<RequestId, std::vector<int32_t>> run_all(Engine& engine) {
    std::map<RequestId, std::vector<int32_t>> made;
    for (int steps = 0; !engine.is_idle(); ++steps) {
        REQUIRE(steps < 100'000);
        for (const MadeToken& token : engine.step()) made[token.request].push_back(token.token);
    }
    return made;
}

TEST_CASE("requests that share steps get what each gets alone") {
    struct Row {
        int64_t pages, rows_max, sequences_max;
        bool preempts;
    };
    const Row rows[] = {
        {200, 512, 64, false}, {200, 8, 8, false},  // prompts in pieces
        {200, 512, 1, false},                       // one after the other
        {12, 64, 16, true},                         // a cache for a few texts at once
        {8, 16, 16, true},
    };
    for (const Row& row : rows) {
        FakeRunner runner(row.pages, row.rows_max, 1000);
        Engine engine(runner, {row.sequences_max, 256});
        std::mt19937 random(5);
        std::map<RequestId, std::vector<int32_t>> expected;
        for (int i = 0; i < 40; ++i) {
            const auto length = static_cast<int64_t>(1 + random() % 90);
            const auto tokens = static_cast<int64_t>(1 + random() % 120);
            const std::vector<int32_t> prompt = random_prompt(random, length);
            expected[engine.add(request_of(prompt, tokens))] = continuation(prompt, tokens);
        }
        CHECK(run_all(engine) == expected);
        CHECK((engine.counts().preempted > 0) == row.preempts);
        CHECK(engine.counts().pages_used == 0);
        CHECK(runner.most_rows > 1);
    }
}

TEST_CASE("a text ends with an end token, with its last token, or with the context") {
    FakeRunner runner(100, 64, 50);
    Engine engine(runner, {});
    const std::vector<int32_t> prompt = {5, 6, 7};
    const std::vector<int32_t> all = continuation(prompt, 100);
    std::map<RequestId, TextEnd> reasons;
    Request ends = request_of(prompt, 100);
    ends.end_tokens = {all[4]};
    const RequestId by_token = engine.add(ends);
    const RequestId by_count = engine.add(request_of(prompt, 7));
    const RequestId by_context = engine.add(request_of(prompt, 100));
    std::map<RequestId, std::vector<int32_t>> made;
    while (!engine.is_idle())
        for (const MadeToken& token : engine.step()) {
            made[token.request].push_back(token.token);
            reasons[token.request] = token.end;
        }
    const auto first = [&](int64_t n) { return std::vector(all.begin(), all.begin() + n); };
    const auto end = std::ranges::find(all, all[4]) - all.begin();
    CHECK(made[by_token] == first(end + 1));
    CHECK(reasons[by_token] == TextEnd::kStop);
    CHECK(made[by_count] == first(7));
    CHECK(reasons[by_count] == TextEnd::kLength);
    // The last of 50 positions still has a successor.
    CHECK(made[by_context] == first(50 - 3 + 1));
    CHECK(reasons[by_context] == TextEnd::kContext);
}

TEST_CASE("a cancelled request gives its pages back and changes no other text") {
    FakeRunner runner(64, 32, 1000);
    Engine engine(runner, {8, 256});
    std::mt19937 random(11);
    std::map<RequestId, std::vector<int32_t>> expected, made;
    std::vector<RequestId> cancelled;
    for (int i = 0; i < 20; ++i) {
        const std::vector<int32_t> prompt = random_prompt(random, 40);
        const RequestId id = engine.add(request_of(prompt, 30));
        if (i % 3 == 0)
            cancelled.push_back(id);
        else
            expected[id] = continuation(prompt, 30);
    }
    for (int steps = 0; !engine.is_idle(); ++steps) {
        for (const MadeToken& token : engine.step()) made[token.request].push_back(token.token);
        if (steps == 5)
            for (const RequestId id : cancelled) engine.cancel(id);
    }
    for (const RequestId id : cancelled) {
        CHECK(made[id].size() < 30);
        made.erase(id);
    }
    CHECK(made == expected);
    CHECK(engine.counts().pages_used == 0);
}

TEST_CASE("a queue has an end, and prompts that can never run are refused") {
    FakeRunner runner(4, 8, 200);
    Engine engine(runner, {2, 3});
    for (int i = 0; i < 3; ++i) {
        REQUIRE(engine.has_room());
        static_cast<void>(engine.add(request_of({1}, 5)));
    }
    CHECK_FALSE(engine.has_room());
    static_cast<void>(engine.step());
    CHECK(engine.has_room());
    using Catch::Contains;
    CHECK_THROWS_WITH(engine.add(request_of({}, 5)), Contains("no tokens"));
    CHECK_THROWS_WITH(engine.add(request_of({kFakeVocabulary}, 5)), Contains("vocabulary"));
    CHECK_THROWS_WITH(engine.add(request_of({-1}, 5)), Contains("vocabulary"));
    CHECK_THROWS_WITH(engine.add(request_of(std::vector<int32_t>(129, 1), 5)), Contains("cache"));
}

TEST_CASE("bytes of a batch give it back, and others are refused") {
    Batch batch;
    batch.rows = {{5, 2, 0, 3, true}, {6, 0, 1, 9, false}};
    batch.sequences = {{{3, 4}}, {{}}};
    const std::string bytes = batch_bytes(batch);
    const Batch back = parse_batch(bytes);
    CHECK(batch_bytes(back) == bytes);
    CHECK(back.rows[1].length == 9);
    CHECK(back.logits_rows() == 1);
    for (size_t length = 0; length < bytes.size(); ++length)
        CHECK_THROWS_AS(parse_batch(std::string_view(bytes).substr(0, length)), Error);
    CHECK_THROWS_AS(parse_batch(bytes + "x"), Error);
}

}  // namespace
}  // namespace dslaunch::decoder
