// Rows made from Parquet files are equal to rows made from the same samples as lines of JSON
// (tests/fixtures/make_tables.py). dslaunch eval judges packed rows as it judges rows of one
// document each, and no command judges a model that contains NaN.
#include <numeric>

#include "base/text.h"
#include "fixture_runs.h"
#include "support/skip.h"

namespace dslaunch::test {
namespace {

// A folder with a tokenizer of words and a chat template.
class Preparing {
  public:
    Preparing() {
        std::filesystem::create_directory(model());
        std::filesystem::copy(fixture_path("preferences/tokenizer.json"),
                              model() + "/tokenizer.json");
        write_file(model() + "/chat_template.jinja",
                   "{% for m in messages %}t1 {{ m.role }} {{ m.content or '' }}"
                   "{% for call in m.tool_calls %} {{ call | tojson }}{% endfor %} t2\n"
                   "{% endfor %}{% if tools %}{{ tools | tojson }}{% endif %}"
                   "{% if add_generation_prompt %}t1 assistant {% endif %}");
    }

    // The exit code and the output of the command, and ROWS if it made rows.
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
    return fixture_path("tables/" + name);
}

bool reads_parquet() {
    if (std::filesystem::exists(std::string(binary_dir()) + "/libdsl_parquet.so")) return true;
    report_skipped("rows of Parquet files", "Arrow is not there: make parquet");
    return false;
}

// The fixture's model with a tokenizer.
class Judged {
  public:
    Judged() {
        std::filesystem::copy(fixture_path("huggingface/llama"), model());
        std::filesystem::copy(fixture_path("preferences/tokenizer.json"),
                              model() + "/tokenizer.json");
    }

    [[nodiscard]] std::string model() const { return in("llama"); }
    [[nodiscard]] std::string in(const std::string& name) const {
        return folder_.path() + "/" + name;
    }
    [[nodiscard]] ProgramEnd run(std::vector<std::string> words) const {
        return run_dslaunch(folder_, std::move(words));
    }
    [[nodiscard]] std::string prepare(const std::string& name, const std::string& lines,
                                      const std::vector<std::string>& more = {}) const {
        const std::string rows = in(name);
        std::vector<std::string> words = {"data",      "prepare", lines, "--model", model(),
                                          "--context", "24",      "-o",  rows};
        words.insert(words.end(), more.begin(), more.end());
        const ProgramEnd ended = run(words);
        INFO(ended.err);
        REQUIRE(ended.code == 0);
        return rows;
    }
    [[nodiscard]] Json judge(const std::string& rows) const {
        const ProgramEnd ended = run({"eval", model(), "--data", rows, "--json"});
        INFO(ended.err);
        REQUIRE(ended.code == 0);
        return Json::parse(ended.out);
    }

  private:
    TemporaryFolder folder_;
};

// Overwrites int32 number AT of COLUMN in the rows at PATH.
void set_number(const std::string& path, const std::string& column, int64_t at, int32_t number) {
    std::string bytes = content_of(path);
    uint64_t header = 0;
    std::memcpy(&header, bytes.data(), sizeof header);
    const Json entries = Json::parse(bytes.substr(8, header));
    const auto begin = entries.at(column).at("data_offsets")[0].get<size_t>();
    std::memcpy(bytes.data() + 8 + header + begin + static_cast<size_t>(at) * sizeof number,
                &number, sizeof number);
    write_file(path, bytes);
}

// Sets the last 32 bytes of each file of weights to NaN; their bits are NaN in fp32, bf16 and fp16.
void break_weights(const std::string& model) {
    for (const auto& entry : std::filesystem::directory_iterator(model)) {
        if (entry.path().extension() != ".safetensors" ||
            entry.path().filename() == "expected.safetensors")
            continue;
        std::string bytes = content_of(entry.path().string());
        std::fill(bytes.end() - 32, bytes.end(), '\xff');
        write_file(entry.path(), bytes);
    }
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
    // Tables and files of lines, one after the other, with any number of threads.
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
         {"bad.parquet:2: left out: the row has no keys, but needs one of: text",
          "bad.parquet:3: left out: text: the text is empty",
          "bad.parquet:4: left out: the row: no message is the assistant's",
          "bad.parquet:5: left out: messages[1]: expected an object with role and content",
          "bad.parquet:6: left out: messages[0].role: expected a string",
          "bad.parquet:8: left out: messages: the list contains no message",
          "bad-number.parquet:2: left out: messages: contains a number that is not finite",
          "bad-bytes.parquet:2: left out: invalid JSON at byte",
          "lines: 1 messages, 9 text; 8 bad"})
        CHECK_THAT(made.said, Catch::Contains(told));
    const Preparing::Prepared few =
        preparing.prepare({table("bad.parquet")}, {"--max-bad-lines", "4"});
    CHECK(few.code == 66);
    CHECK_THAT(few.said, Catch::Contains("bad.parquet:6") &&
                             Catch::Contains("this makes more than 4 bad lines"));
    const Preparing::Prepared outside = preparing.prepare({table("bad-dictionary.parquet")});
    CHECK(outside.code == 66);
    CHECK_THAT(outside.said, Catch::Contains("entry 3 of a dictionary with 3 entries"));
    const Preparing::Prepared piped = preparing.prepare({"-"}, {}, table("bad.parquet"));
    CHECK(piped.code == 66);
    CHECK_THAT(piped.said,
               Catch::Contains("-: is a Parquet file, which cannot be read from a pipe"));
}

TEST_CASE("a file of JSON has a row in each line, in a list or in several lines each") {
    const Preparing preparing;
    const auto write = [&](const std::string& name, const std::string& text) {
        write_file(preparing.folder().path() + "/" + name, text);
        return preparing.folder().path() + "/" + name;
    };
    const std::string first = R"({"question": "t3 [", "answer": "t4 }\\"})";
    const std::string second = R"({"question": "t5", "answer": "\"t6, {", "id": [1, {"a": 2}]})";
    const auto lines = preparing.prepare({write("a.jsonl", first + "\n" + second + "\n")});
    INFO(lines.said);
    REQUIRE(lines.code == 0);
    CHECK_THAT(lines.said, Catch::Contains("ignored columns: id"));
    const std::string spread = "{\n  \"question\": \"t3 [\",\n  \"answer\": \"t4 }\\\\\"\n}";
    for (const std::string& text :
         {"[" + first + "," + second + "]", "\xef\xbb\xbf[\n" + first + ",\r\n" + second + "\n]\n",
          "\n \r\n[" + first + ",\n" + second + "]", "\n" + spread + "\n" + second,
          spread + "\n" + second, "[" + spread + ", " + second + "]",
          first + "\r" + second + "\r"}) {
        const auto made = preparing.prepare({write("a.json", text)});
        INFO(text << "\n" << made.said);
        CHECK(made.code == 0);
        CHECK(made.rows == lines.rows);
        CHECK(preparing.prepare({"-"}, {}, preparing.folder().path() + "/a.json").rows ==
              lines.rows);
    }
    const auto bad = preparing.prepare({write("bad.json", "[" + first + ", 5, {\"question\" 6}]")});
    CHECK(bad.code == 0);
    CHECK_THAT(bad.said, Catch::Contains("bad.json:2: left out: the line is not a JSON object") &&
                             Catch::Contains("bad.json:3: left out: invalid JSON at byte"));
    const std::pair<std::string, std::string> refused[] = {
        {"[" + first + "," + second.substr(0, 20), "the file ends before its JSON list does"},
        {"[" + first + "]\n" + second, "the file continues after the end of its JSON list"},
        {"question,answer\nt3,t4\n", "is a table with commas or tabs"},
        {"question\tanswer\nt3\tt4\n", "sep=\"\\t\")"},
        {"%PDF-1.7\n1 0 obj\n", "is a PDF document"},
        {"<!DOCTYPE html>\n<p>hi\n", "is a web page or other XML"},
        {"\x1f\x8b\x08\n", "is compressed (gzip), so decompress it: use `gunzip -c FILE |"},
        {"\x28\xb5\x2f\xfd\n", "is compressed (zstd)"},
        {"7z\xbc\xaf\n", "is compressed (7z)"},
        {"Rar!\x1a\n", "is compressed (rar)"},
        {"\x04\x22\x4d\x18\n", "is compressed (lz4)"},
        {"chats.jsonl" + std::string(246, '\0') + "ustar\n{\"text\": \"a\"}\n",
         "is a tar archive: unpack it"},
        {"\xff\xff\xff\xff\n", "datasets.Dataset.from_file(\"FILE\").to_json"},
        {"ARROW1\n", "pandas.read_feather(\"FILE\").to_json"},
        {std::string("\xff\xfe{\0\"\0", 6), "is UTF-16, but must be UTF-8"},
        {std::string("{\0\"\0t\0", 6), "is UTF-16, but must be UTF-8"},
        {std::string("{\"text\": \"a\0b\"}", 15), "invalid JSON at byte"},
        {"\x89PNG\r\n", "is an image, but lines of JSON or plain text are expected"},
        {"\x93NUMPY\x01 ", "but lines of JSON or plain text are expected"},
        {"[]", "no line produced a row (0 bad lines"},
        {"", "no.json: is empty"},
        {"\n \n\n", "no.json: contains only blank lines"},
        {std::string(300, '\0'), "no.json: contains only zero bytes"},
        {"{\"a\": 1}\n{\"a\": 2}\n{\"a\": 3}\n", "2 lines more left out for the same reason as "},
    };
    for (const auto& [text, reason] : refused) {
        const auto made = preparing.prepare({write("no.json", text)});
        INFO(printable(text) << made.said);
        CHECK(made.code == 66);
        CHECK_THAT(made.said, Catch::Contains("no.json") && Catch::Contains(reason));
    }
    CHECK(preparing.prepare({write("a.csv", "a,b\n1,2\n")}).code == 66);
    // A pipe has no name that says that its content is a plain text.
    CHECK_THAT(preparing.prepare({write("a.txt", std::string("\xff\xfet\0", 4))}).said,
               Catch::Contains("`iconv -f UTF-16 -t UTF-8 FILE > NEW.txt`, and give NEW.txt"));
    CHECK_THAT(preparing.prepare({write("b.md.gz", "\x1f\x8b\x08\n")}).said,
               Catch::Contains("`gunzip -c FILE > NEW.txt`"));
    CHECK_THAT(preparing.prepare({write("a.yaml", "- text: a\n")}).said,
               Catch::Contains("is YAML, but lines of JSON are expected"));
    CHECK_THAT(preparing.prepare({preparing.folder().path()}).said,
               Catch::Contains("is a folder: name the files in it"));
    std::filesystem::create_directory(preparing.folder().path() + "/saved");
    static_cast<void>(write("saved/dataset_info.json", "{}"));
    const std::string saved = preparing.folder().path() + "/saved";
    CHECK_THAT(preparing.prepare({saved}).said,
               Catch::Contains("datasets.load_from_disk(\"" + saved + "\").to_json"));
    static_cast<void>(write("saved/dataset_dict.json", "{}"));
    CHECK_THAT(preparing.prepare({saved}).said, Catch::Contains("\")[\"train\"].to_json"));
}

TEST_CASE("a plain text gives the rows of a line of JSON that holds it whole") {
    const Judged judged;
    const std::string text = judged.in("book.txt"), line = judged.in("book.jsonl");
    std::string book;
    for (int i = 0; i < 40; ++i) book += "t3 t4 t5\n\nt6 [t7]\n";
    write_file(text, book);
    write_file(line, Json{{"text", book}}.dump() + "\n");
    const std::string of_text = judged.prepare("a.safetensors", text);
    const std::string of_line = judged.prepare("b.safetensors", line);
    CHECK(content_of(of_text) == content_of(of_line));
    // An existing file, whether it contains rows or something else, is replaced only with --force.
    const std::string other = judged.in("c.safetensors");
    write_file(other, "weights");
    for (const std::string& out : {of_text, other}) {
        const std::string before = content_of(out);
        const ProgramEnd refused = judged.run(
            {"data", "prepare", text, "--model", judged.model(), "--context", "24", "-o", out});
        CHECK(refused.code == 66);
        CHECK_THAT(refused.err, Catch::Contains("already exists; use --force to replace it"));
        CHECK(content_of(out) == before);
    }
    CHECK(content_of(judged.prepare("c.safetensors", text, {"--force"})) == content_of(of_line));
}

// Writes lines of questions and answers and returns their path. The longest has WORDS tokens if its
// end token is counted.
std::string questions(const Judged& judged, int words) {
    const std::string lines = judged.in(fmt::format("q{}.jsonl", words));
    std::string text;
    for (const int length : {4, words - 1, 7}) {
        std::string question;
        for (int i = 0; i + 2 < length; ++i) question += "t3 ";
        text += Json{{"prompt", question}, {"completion", "t4 t5"}}.dump() + "\n";
    }
    write_file(lines, text);
    return lines;
}

TEST_CASE("the length of rows is chosen by the longest document, as far as the model reads") {
    const Judged judged;
    const auto prepare = [&](const std::string& lines, std::vector<std::string> more = {}) {
        std::vector<std::string> words = {
            "data",         "prepare",  lines, "--model",
            judged.model(), "--no-end", "-o",  judged.in("rows.safetensors"),
            "--force"};
        words.insert(words.end(), more.begin(), more.end());
        const ProgramEnd ended = judged.run(words);
        INFO(ended.err);
        REQUIRE(ended.code == 0);
        return ended.out + ended.err;
    };
    // The model has 64 positions.
    const std::string fits = questions(judged, 21);
    CHECK_THAT(prepare(fits), Catch::Contains("rows of 32 tokens: the longest document has 20 "
                                              "(--context N sets another length)") &&
                                  Catch::Contains("3 rows of length 32"));
    const std::string chosen = content_of(judged.in("rows.safetensors"));
    CHECK_THAT(prepare(fits, {"--context", "32"}), !Catch::Contains("longer than"));
    CHECK(content_of(judged.in("rows.safetensors")) == chosen);
    CHECK_THAT(prepare(fits, {"--context", "8"}),
               Catch::Contains("1 of 3 documents is longer than --context 8; the longest has 20 "
                               "tokens: --context 32 splits none"));
    CHECK_THAT(prepare(fits, {"--context", "8", "--long", "drop"}),
               Catch::Contains("--context 32 leaves out none"));
    CHECK_THAT(
        prepare(questions(judged, 101)),
        Catch::Contains("the longest document has 100, but the model has no more positions") &&
            Catch::Contains("the longest has 100 tokens: the model has 64 positions, so use at "
                            "most --context 64"));
    CHECK_THAT(prepare(fits, {"--context", "100"}),
               Catch::Contains("the model has only 64 positions, so rows are longer"));
    // Rows of pairs are as long as the longest answer needs.
    CHECK_THAT(prepare(fixture_path("preferences/pairs.jsonl")), Catch::Contains("rows of 48"));
    // A text is longer than any row, but nothing of it is lost.
    const std::string book = judged.in("book.txt");
    std::string text;
    for (int i = 0; i < 200; ++i) text += "t3 t4 t5\n";
    write_file(book, text);
    const std::string said = prepare(book);
    CHECK_THAT(said, Catch::Contains("rows of 64") && !Catch::Contains("splits none"));
}

TEST_CASE("tokens that the model has no embedding for are told with the largest one") {
    const Judged judged;
    const std::string lines = judged.in("a.jsonl");
    write_file(lines, "{\"text\": \"t3 t4\"}\n{\"text\": \"t3 <new> t4\"}\n");
    const auto said = [&] {
        const ProgramEnd ended = judged.run({"data", "prepare", lines, "--model", judged.model(),
                                             "-o", judged.in("r.safetensors"), "--force"});
        INFO(ended.err);
        REQUIRE(ended.code == 0);
        return ended.err;
    };
    CHECK_THAT(said(), !Catch::Contains("training will refuse"));
    Json tokenizer = Json::parse(content_of(judged.model() + "/tokenizer.json"));
    const Json config = Json::parse(content_of(judged.model() + "/config.json"));
    const auto vocabulary = config["vocab_size"].get<int64_t>();
    Json added = tokenizer["added_tokens"][0];
    added["id"] = vocabulary;
    added["content"] = "<new>";
    tokenizer["added_tokens"].push_back(added);
    write_file(judged.model() + "/tokenizer.json", tokenizer.dump());
    CHECK_THAT(said(), Catch::Contains(fmt::format(
                           "1 document, so training will refuse rows with these tokens: "
                           "tokenizer.json has the token {0}, but vocab_size in config.json is {0}",
                           vocabulary)));
}

TEST_CASE("a row that was not meant to be learned is left out and told") {
    const Preparing preparing;
    const std::string lines = preparing.folder().path() + "/a.jsonl";
    write_file(lines, R"({"prompt": "t3", "completion": "t4", "label": false})"
                      "\n"
                      R"({"prompt": "t3", "completion": " t4"})"
                      "\n");
    const Preparing::Prepared made = preparing.prepare({lines});
    INFO(made.said);
    REQUIRE(made.code == 0);
    CHECK_THAT(made.said,
               Catch::Contains("a.jsonl:1: left out: label: in a row of the form `completion`") &&
                   Catch::Contains("lines: 1 completion; 1 bad") &&
                   Catch::Contains("1 line with a prompt and its continuation: such lines do not "
                                   "use the chat template; to use it, add --as-chat"));
    CHECK(preparing.prepare({lines}, {"--as-chat"}).rows != made.rows);
    const Preparing::Prepared strict = preparing.prepare({lines}, {"--max-bad-lines", "0"});
    CHECK(strict.code == 66);
    CHECK_THAT(strict.said, Catch::Contains("a.jsonl:1: label:"));
}

TEST_CASE("a text ends with the tokenizer's end token, once") {
    const Preparing preparing;
    const std::string lines = preparing.folder().path() + "/a.jsonl";
    const auto made_of = [&](const std::string& text) {
        write_file(lines, "{\"text\": \"" + text + "\"}\n");
        return preparing.prepare({lines}).rows;
    };
    const std::string open = made_of("t3 t4");
    write_file(preparing.folder().path() + "/model/tokenizer_config.json",
               R"({"eos_token": {"content": "</s>"}})");
    const std::string ended = made_of("t3 t4");
    CHECK(ended != open);
    CHECK(ended == made_of("t3 t4 </s>"));
}

TEST_CASE("rows that keep documents apart are held out as they are trained") {
    const TemporaryFolder folder;
    const std::string model = folder.path() + "/llama", rows = folder.path() + "/rows.safetensors";
    std::filesystem::copy(fixture_path("huggingface/llama"), model);
    std::filesystem::copy(fixture_path("preferences/tokenizer.json"), model + "/tokenizer.json");
    JobProcess prepare(folder, {kDslaunch, "data", "prepare", table("texts.jsonl"), "--model",
                                model, "--context", "24", "--pack", "-o", rows});
    REQUIRE(prepare.wait() == 0);
    const std::map<std::string, Stored> columns = read_safetensors(rows);
    REQUIRE(columns.count("documents") == 1);
    const int64_t count = columns.at("documents").shape[0];
    // The held-out loss is the mean over all targets of the folder's rows. The loss of a step is
    // the mean over the targets of its row.
    std::vector<int32_t> targets(columns.at("targets").bytes.size() / sizeof(int32_t));
    std::memcpy(targets.data(), columns.at("targets").bytes.data(),
                targets.size() * sizeof(int32_t));
    std::vector<double> learned(static_cast<size_t>(count));
    for (size_t i = 0; i < targets.size(); ++i)
        learned[i * learned.size() / targets.size()] += targets[i] != -100 ? 1 : 0;
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
        const double mean = std::inner_product(losses.begin(), losses.end(), learned.begin(), 0.0) /
                            std::accumulate(learned.begin(), learned.end(), 0.0);
        CHECK(result.metrics.back().at("eval_loss").get<double>() == Approx(mean).epsilon(1e-6));
    }
}

TEST_CASE("packed and unpacked rows give equal losses") {
    const Judged judged;
    const std::string texts = fixture_path("tables/texts.jsonl");
    const Json alone = judged.judge(judged.prepare("alone.safetensors", texts));
    const std::string rows = judged.prepare("packed.safetensors", texts, {"--pack"});
    const Json packed = judged.judge(rows);
    CHECK(packed.at("samples").get<int64_t>() < alone.at("samples").get<int64_t>());
    CHECK(packed.at("targets") == alone.at("targets"));
    CHECK(packed.at("accuracy") == alone.at("accuracy"));
    // Each target has the same tokens before it, at the same positions. A product of matrices adds
    // in the same order for any number of rows.
    CHECK(packed.at("loss").get<double>() == Approx(alone.at("loss").get<double>()).epsilon(1e-6));
    // If documents see each other, the loss differs. So the column has an effect.
    const Json together =
        judged.judge(judged.prepare("together.safetensors", texts, {"--pack", "--attend-all"}));
    CHECK(std::abs(together.at("loss").get<double>() - packed.at("loss").get<double>()) > 1e-4);

    for (const auto& [at, number] : {std::pair{3, -5}, std::pair{23, 0}, std::pair{23, -1}}) {
        const std::string bad = judged.in("bad.safetensors");
        write_file(bad, content_of(rows));
        if (number >= 0) set_number(bad, "documents", 22, 1000);
        set_number(bad, "documents", at, number);
        const ProgramEnd ended = judged.run({"eval", judged.model(), "--data", bad});
        INFO(ended.err);
        CHECK(ended.code == 66);
        CHECK_THAT(ended.err, Catch::Contains("the document number " + std::to_string(number)));
        // Training refuses the same numbers.
        const ProgramEnd trained = judged.run({"--num_gpus", "1", "--data", bad, "--steps", "1",
                                               "--micro-batch", "1", judged.model()});
        INFO(trained.err);
        CHECK(trained.code == 66);
        CHECK_THAT(trained.err,
                   Catch::Contains("column 'documents', row 0, element " + std::to_string(at)));
    }
}

TEST_CASE("NaN is never a result of eval, and never in the user's file") {
    const Judged judged;
    const std::string texts =
        judged.prepare("texts.safetensors", fixture_path("tables/texts.jsonl"));
    const std::string pairs =
        judged.prepare("pairs.safetensors", fixture_path("preferences/pairs.jsonl"));
    const std::string choices = judged.in("choices.jsonl");
    write_file(choices, "{\"prompt\": \"t3\", \"choices\": [\" t4\", \" t5\"], \"answer\": 0}\n");
    const std::string before = content_of(pairs);
    REQUIRE(judged.run({"eval", judged.model(), "--choices", choices}).code == 0);
    CHECK(judged.run({"eval", judged.model(), "--data", texts, "--samples", "0"}).code == 64);
    const std::string letters = judged.in("letters.jsonl");
    write_file(letters,
               "{\"prompt\": \"t3\", \"choices\": [\" t4\", \" t5\"], \"answer\": \"B\"}\n");
    CHECK_THAT(judged.run({"eval", judged.model(), "--choices", letters}).err,
               Catch::Contains("write the index of the right choice, counted from 0 (A is 0)"));
    break_weights(judged.model());
    for (const std::vector<std::string>& what : {std::vector<std::string>{"--data", texts},
                                                 {"--data", pairs},
                                                 {"--choices", choices},
                                                 {"--data", pairs, "--write-reference"}}) {
        std::vector<std::string> words = {"eval", judged.model()};
        words.insert(words.end(), what.begin(), what.end());
        const ProgramEnd ended = judged.run(words);
        INFO(what.back() << "\n" << ended.out << ended.err);
        CHECK(ended.code == 66);
        CHECK(ended.out.empty());
        CHECK_THAT(ended.err, Catch::Contains("the model's logits are not finite numbers"));
    }
    CHECK(content_of(pairs) == before);
    const ProgramEnd written = judged.run(
        {"generate", judged.model(), "--prompt-ids", "5,17", "--as", "ids", "--tokens", "2"});
    CHECK(written.code == 66);
    CHECK_THAT(written.err, Catch::Contains("the model's logits are not finite numbers"));
}

TEST_CASE("questions in the form of ARC are the same questions with labels") {
    const Judged judged;
    const std::string plain = judged.in("plain.jsonl"), labels = judged.in("labels.jsonl");
    write_file(plain, R"(
{"prompt": "Question: t3\nAnswer:", "choices": [" t4", " t5", " t6"], "answer": 1}
{"prompt": "Question: t7\nAnswer:", "choices": [" t4", " t8"], "answer": 0})");
    const auto line = [](auto question, auto texts, auto names, auto key) {
        return fmt::format(
            "{{\"question\": \"{}\", \"choices\": {{\"text\": {}, \"label\": {}}}, \"answerKey\": "
            "\"{}\"}}\n",
            question, texts, names, key);
    };
    const std::string three = R"(["t4", "t5", "t6"])", letters = R"(["A", "B", "C"])";
    const std::string first = line("t3", three, letters, "B"),
                      second = line("t7", "[\"t4\", \"t8\"]", "[\"1\", \"2\"]", "1");
    const ProgramEnd expected = judged.run({"eval", judged.model(), "--choices", plain, "--json"});
    REQUIRE(expected.code == 0);
    for (const std::string& form : {first + second, "[" + first + "," + second + "]"}) {
        write_file(labels, form);
        CHECK(judged.run({"eval", judged.model(), "--choices", labels, "--json"}).out ==
              expected.out);
    }
    for (const std::string& bad :
         {line("t3", three, letters, "D"), line("t3", three, "[\"A\", \"B\"]", "B"),
          line("t3", "[\"t4\", 5, \"t6\"]", letters, "B")}) {
        write_file(labels, bad);
        CHECK_THAT(judged.run({"eval", judged.model(), "--choices", labels}).err,
                   Catch::Contains("labels.jsonl:1: this is not a question"));
    }
}

TEST_CASE("a data set of the hub is named with the command that fetches it") {
    const Judged judged;
    const auto fetch = Catch::Contains("`hf download --repo-type dataset Org/set --local-dir set`");
    std::vector<std::string> words = {"data", "prepare", "Org/set", "--model", judged.model()};
    words.insert(words.end(), {"-o", judged.in("x.safetensors")});
    CHECK_THAT(judged.run(words).err, fetch);
    CHECK_THAT(judged.run({"eval", judged.model(), "--data", "Org/set"}).err, fetch);
}

TEST_CASE("a model of learned positions is judged on shorter samples than it has positions") {
    const Judged judged;
    const ProgramEnd ended =
        judged.run({"eval", fixture_path("huggingface/gpt2"), "--data",
                    fixture_path("lora/gpt2/tokens.u16.bin"), "--context", "4"});
    INFO(ended.err);
    CHECK(ended.code == 0);
    CHECK_THAT(ended.out, Catch::Contains("held-out loss"));
}

TEST_CASE("a reference that is not finite is refused by the number of its pair") {
    const Judged judged;
    const std::string pairs =
        judged.prepare("pairs.safetensors", fixture_path("preferences/pairs.jsonl"));
    REQUIRE(judged.run({"eval", judged.model(), "--data", pairs, "--write-reference"}).code == 0);
    set_number(pairs, "reference", 5, -1);  // a NaN
    const ProgramEnd ended = judged.run({"eval", judged.model(), "--data", pairs});
    CHECK(ended.code == 66);
    CHECK_THAT(ended.err, Catch::Contains("`reference` contains") && Catch::Contains("at pair 2"));
}

}  // namespace dslaunch::test
