// Rows made of Parquet files, against those of the same samples as lines of JSON
// (tests/fixtures/make_tables.py).
#include <numeric>

#include "fixture_runs.h"
#include "support/skip.h"

namespace dslaunch::test {
namespace {

// A folder with a tokenizer of words and a template.
class Preparing {
  public:
    Preparing() {
        std::filesystem::create_directory(model());
        std::filesystem::copy(fixture_file("preferences/tokenizer.json"),
                              model() + "/tokenizer.json");
        write_file(model() + "/chat_template.jinja",
                   "{% for m in messages %}t1 {{ m.role }} {{ m.content or '' }}"
                   "{% for call in m.tool_calls %} {{ call | tojson }}{% endfor %} t2\n"
                   "{% endfor %}{% if tools %}{{ tools | tojson }}{% endif %}"
                   "{% if add_generation_prompt %}t1 assistant {% endif %}");
    }

    // What it said, and ROWS if it made some.
    struct Prepared {
        int code = 0;
        std::string said, rows;
    };
    [[nodiscard]] Prepared prepare(const std::vector<std::string>& files,
                                   const std::vector<std::string>& more = {},
                                   const std::string& input = "/dev/null") const {
        const std::string out = folder_.path() + "/rows.safetensors";
        std::filesystem::remove(out);
        std::vector<std::string> words = {
            "sh",        "-c",      "file=$1; shift; exec \"$@\" < \"$file\"",
            "sh",        input,     kDslaunch,
            "data",      "prepare", "--model",
            model(),     "-o",      out,
            "--context", "48"};
        words.insert(words.end(), more.begin(), more.end());
        words.insert(words.end(), files.begin(), files.end());
        JobProcess process(folder_, words);
        Prepared prepared;
        prepared.code = process.wait();
        prepared.said = process.out() + process.err();
        if (prepared.code == 0) prepared.rows = content_of(out);
        return prepared;
    }
    [[nodiscard]] const TemporaryFolder& folder() const { return folder_; }

  private:
    [[nodiscard]] std::string model() const { return folder_.path() + "/model"; }

    TemporaryFolder folder_;
};

std::string table(const std::string& name) {
    return fixture_file("tables/" + name);
}

bool reads_parquet() {
    if (std::filesystem::exists(std::string(binary_dir()) + "/libdsl_parquet.so")) return true;
    report_skipped("rows of Parquet files", "Arrow is not there: make parquet");
    return false;
}

}  // namespace

TEST_CASE("rows of a Parquet file are those of the same samples as lines of JSON") {
    const Preparing preparing;
    for (const std::string kind : {"chats", "texts", "pairs"}) {
        const Preparing::Prepared of_lines = preparing.prepare({table(kind + ".jsonl")});
        INFO(kind << "\n" << of_lines.said);
        REQUIRE(of_lines.code == 0);
        if (!reads_parquet()) return;
        for (const std::string how : {"snappy", "zstd-v2", "large-gzip", "words", "plain"}) {
            const Preparing::Prepared of_table =
                preparing.prepare({table(kind + "-" + how + ".parquet")});
            INFO(how << "\n" << of_table.said);
            REQUIRE(of_table.code == 0);
            CHECK(of_table.rows == of_lines.rows);
        }
    }
    // Tables and lines in a row, on any number of threads.
    const Preparing::Prepared twice =
        preparing.prepare({table("texts.jsonl"), table("texts.jsonl")}, {"--pack"});
    const Preparing::Prepared mixed = preparing.prepare(
        {table("texts-words.parquet"), table("texts.jsonl")}, {"--pack", "--threads", "3"});
    REQUIRE(mixed.code == 0);
    CHECK(mixed.rows == twice.rows);
    CHECK_FALSE(mixed.rows == preparing.prepare({table("texts.jsonl")}, {"--pack"}).rows);
}

TEST_CASE("bad rows of a Parquet file are left out and told by number and reason") {
    if (!reads_parquet()) return;
    const Preparing preparing;
    const Preparing::Prepared made = preparing.prepare(
        {table("bad.parquet"), table("bad-number.parquet"), table("bad-bytes.parquet")});
    INFO(made.said);
    REQUIRE(made.code == 0);
    for (const char* told :
         {"bad.parquet:2: left out: the row has no keys, and none of text",
          "bad.parquet:3: left out: text: the text is empty",
          "bad.parquet:4: left out: the row: no message is the assistant's",
          "bad.parquet:5: left out: messages[1]: an object with role and content is due",
          "bad.parquet:6: left out: messages[0].role: a text is due",
          "bad.parquet:8: left out: messages: the list has no message",
          "bad-number.parquet:2: left out: messages: holds a number that is not finite",
          "bad-bytes.parquet:2: left out: no JSON at byte", "lines: 1 messages, 9 text; 8 bad"})
        CHECK_THAT(made.said, Catch::Contains(told));
    const Preparing::Prepared few =
        preparing.prepare({table("bad.parquet")}, {"--max-bad-lines", "4"});
    CHECK(few.code == 66);
    CHECK_THAT(few.said,
               Catch::Contains("bad.parquet:6") && Catch::Contains("more than 4 lines are bad"));
    const Preparing::Prepared outside = preparing.prepare({table("bad-dictionary.parquet")});
    CHECK(outside.code == 66);
    CHECK_THAT(outside.said, Catch::Contains("entry 3 of a dictionary of 3 is named"));
    const Preparing::Prepared piped = preparing.prepare({"-"}, {}, table("bad.parquet"));
    CHECK(piped.code == 66);
    CHECK_THAT(piped.said, Catch::Contains("-: is a Parquet file, which begins at its end"));
}

TEST_CASE("rows that keep documents apart are held out as they are trained") {
    const TemporaryFolder folder;
    const std::string model = folder.path() + "/llama", rows = folder.path() + "/rows.safetensors";
    std::filesystem::copy(fixture_file("huggingface/llama"), model);
    std::filesystem::copy(fixture_file("preferences/tokenizer.json"), model + "/tokenizer.json");
    JobProcess prepare(folder, {kDslaunch, "data", "prepare", table("texts.jsonl"), "--model",
                                model, "--context", "24", "--pack", "-o", rows});
    REQUIRE(prepare.wait() == 0);
    const std::map<std::string, Stored> columns = read_safetensors(rows);
    REQUIRE(columns.count("documents") == 1);
    const int64_t count = columns.at("documents").shape[0];
    Json config;
    config["train_micro_batch_size_per_gpu"] = 1;
    config["optimizer"] = {{"type", "SGD"}, {"params", {{"lr", 0.0}}}};
    config["dslaunch"] = {{"steps", count},
                          {"data", {{"train", rows}, {"eval", rows}, {"shuffle", false}}}};
    for (const int stage : {0, 3}) {
        INFO("ZeRO " << stage);
        std::filesystem::remove_all(folder.path() + "/out");
        config["zero_optimization"] = {{"stage", stage}};
        const TrainResult result = train(folder, ranks(1), model, config);
        INFO(result.err);
        REQUIRE(result.code == 0);
        const std::vector<double> losses = result.losses();
        REQUIRE(std::ssize(losses) == count);
        const double mean =
            std::accumulate(losses.begin(), losses.end(), 0.0) / static_cast<double>(count);
        CHECK(result.metrics.back().at("eval_loss").get<double>() == Approx(mean).epsilon(1e-6));
    }
}

}  // namespace dslaunch::test
