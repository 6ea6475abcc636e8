// The places of tokens in a text, compared with the Python package `tokenizers`, and the tokens and
// masks of chats, compared with TRL. tests/fixtures/chat/make_rows.py wrote both.
#include <nlohmann/json.hpp>

#include "support/catch.h"
#include "support/places.h"
#include "support/text_tools.h"
#include "text/rows/encode_sample.h"

using namespace dslaunch;
using namespace dslaunch::text;
using namespace dslaunch::test;

namespace {

using Json = nlohmann::json;

Json fixture_of(const char* name) {
    return Json::parse(content_of(fixture_path(name)));
}

// Returns the tokenizers of the fixture by their names.
std::map<std::string, Tokenizer> tokenizers_of(const Json& source) {
    std::map<std::string, Tokenizer> all;
    for (const Json& row : source["rows"]) {
        Json sections = row["tokenizer"];
        sections["model"] = source["models"][sections["model"].get<std::string>()];
        all.emplace(row["name"], Tokenizer::parse(sections.dump(), row["name"]));
    }
    return all;
}

// Returns the begin and the end of each range of learned tokens.
std::vector<size_t> learned_ranges(const std::vector<bool>& is_learned) {
    std::vector<size_t> ranges;
    for (size_t i = 0; i <= is_learned.size(); ++i) {
        const bool before = i > 0 && is_learned[i - 1];
        if (before != (i < is_learned.size() && is_learned[i])) ranges.push_back(i);
    }
    return ranges;
}

class Chats {
  public:
    explicit Chats(const Json& fixture) : fixture_(fixture) {}

    // Compares the forms of ROW with the results of TOKENIZER and the template.
    void check(const Json& row, const Tokenizer& tokenizer) const {
        TemplateSources sources;
        sources.template_file = fixture_["templates"][row["template"].get<size_t>()];
        const auto chat = ChatTemplates::parse("t", sources);
        EncodeRules rules;
        rules.tokenizer = &tokenizer;
        rules.chat = &*chat;
        const Json& messages = fixture_["chats"][row["chat"].get<size_t>()];
        const Json prompt = Json(std::vector<Json>(messages.begin(), messages.end() - 1));
        if (row.contains("completion"))
            compare(row["completion"],
                    encode({{"prompt", prompt}, {"completion", {messages.back()}}}, rules));
        if (row.contains("marked")) compare(row["marked"], encode({{"messages", messages}}, rules));
        const Json other = {{"role", "assistant"}, {"content", fixture_["other"]}};
        const Json pair = {
            {"prompt", prompt}, {"chosen", {messages.back()}}, {"rejected", Json::array({other})}};
        EncodedSample chosen = encode(pair, rules);
        EncodedSample rejected = encode(pair, rules, PreferenceSide::kRejected);
        share_prompt(chosen, rejected);
        compare(row["chosen"], chosen);
        compare(row["rejected"], rejected);
    }

  private:
    static EncodedSample encode(const Json& line, const EncodeRules& rules,
                                PreferenceSide side = PreferenceSide::kChosen) {
        const ParsedRow parsed = parse_row(line.dump());
        INFO(parsed.reason);
        REQUIRE(parsed.sample);
        return encode_sample(*parsed.sample, rules, side);
    }

    static void compare(const Json& wanted, const EncodedSample& made) {
        CHECK(made.reason == "");
        CHECK(made.document.tokens == wanted["ids"].get<std::vector<int32_t>>());
        CHECK(learned_ranges(made.document.is_learned) ==
              wanted["learned"].get<std::vector<size_t>>());
    }

    const Json& fixture_;
};

}  // namespace

TEST_CASE("each token knows its place in the text, as it does in tokenizers") {
    const Json source = fixture_of("tokenizers/tokenizers.json");
    const Json fixture = fixture_of("chat/rows.json");
    for (const auto& [name, tokenizer] : tokenizers_of(source)) {
        for (size_t i = 0; i < source["texts"].size(); ++i) {
            const std::string text = source["texts"][i];
            INFO(name << ": " << text);
            const EncodedText encoded = tokenizer.encode_spans(text, {.add_special_tokens = false});
            CHECK(encoded.ids == tokenizer.encode(text, {.add_special_tokens = false}));
            std::vector<size_t> places;
            for (const TokenSpan& span : encoded.spans)
                places.insert(places.end(), {span.begin_bytes, span.end_bytes});
            CHECK(places == fixture["spans"][name][i].get<std::vector<size_t>>());
        }
    }
}

TEST_CASE("chats become the tokens and masks that TRL makes of them") {
    const auto tokenizers = tokenizers_of(fixture_of("tokenizers/tokenizers.json"));
    const Json fixture = fixture_of("chat/rows.json");
    const Chats chats(fixture);
    for (const Json& row : fixture["rows"]) {
        INFO(row["tokenizer"] << " " << row["chat"] << " "
                              << fixture["templates"][row["template"].get<size_t>()]);
        chats.check(row, tokenizers.at(row["tokenizer"]));
    }
}
