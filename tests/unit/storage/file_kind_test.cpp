#include "storage/files/file_kind.h"

#include <fstream>

#include "base/error.h"
#include "storage/files/input_file.h"
#include "storage/files/safetensors.h"
#include "support/catch.h"
#include "support/temporary_folder.h"
#include "support/text_tools.h"

using namespace dslaunch;
using namespace dslaunch::storage;
using namespace dslaunch::test;

namespace {

std::string little(uint64_t value, int bytes) {
    std::string text;
    for (int i = 0; i < bytes; ++i) text += static_cast<char>(value >> (8 * i) & 0xff);
    return text;
}

// Returns a zip of empty stored records.
std::string zip_of(const std::vector<std::string>& names) {
    std::string zip, directory;
    for (const std::string& name : names) {
        const std::string facts = little(20, 2) + little(0x800, 2) + little(0, 2) + little(0, 4) +
                                  little(0, 4) + little(0, 4) + little(0, 4) +
                                  little(name.size(), 2) + little(0, 2);
        directory += "PK\x01\x02" + little(20, 2) + facts + little(0, 2) + little(0, 2) +
                     little(0, 2) + little(0, 4) + little(zip.size(), 4) + name;
        zip += "PK\x03\x04" + facts + name;
    }
    const size_t at = zip.size();
    return zip + directory + "PK\x05\x06" + little(0, 4) + little(names.size(), 2) +
           little(names.size(), 2) + little(directory.size(), 4) + little(at, 4) + little(0, 2);
}

std::string npy_header() {
    return "\x93NUMPY\x01" + std::string(1, '\0') + little(2, 2) + "{}";
}

using Check = void (*)(const std::string& path);
constexpr Check kData = [](const std::string& path) { require_data(path); };
constexpr Check kRows = [](const std::string& path) { require_rows(path); };

std::string message_of(Check check, const std::string& name, const std::string& content) {
    const TemporaryFolder folder;
    const std::string path = folder.path() + "/" + name;
    write_file(path, content);
    const std::string message = error_of(ExitCode::kInput, [&] { check(path); });
    if (message != "accepted") CHECK_THAT(message, Catch::StartsWith(path + ": "));
    return message;
}

// Returns tokens of 16 bits with these numbers.
std::string tokens(const std::vector<uint16_t>& numbers) {
    std::string text;
    for (const uint16_t number : numbers) text += little(number, 2);
    return text;
}

}  // namespace

TEST_CASE("what is given as a model or as tokens is known by its content, and mended in a line") {
    struct Row {
        std::string content;
        const char* as_model;
        const char* as_tokens;
    };
    const std::string header = R"({"w":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})";
    const std::string old_pickle("\x80\x02\x8a\x0al\xfc\x9c\x46\xf9\x20j\xa8P\x19.\x80\x02", 17);
    const char* const kFetch = "is a pointer of Git LFS, not the file itself; fetch it: git lfs";
    const char* const kPage = "is a web page instead of the file: the download failed";
    const char* const kWeights = "is a pickle written by torch.save: it has weights";
    const char* const kNoPickle =
        "is a pickle written by torch.save, and pickles are not supported";
    const char* const kUnpack =
        "is compressed or an archive of files, which is not supported: unpack it";
    const char* const kTable = "is a table (Parquet, Arrow or HDF5)";
    const Row rows[] = {
        {zip_of({"m/data.pkl", "m/version", "m/constants.pkl"}), "accepted", "is a model, not"},
        {zip_of({"m/data.pkl", "m/version", "m/data/0"}), kWeights, kNoPickle},
        {zip_of({"m/archive_format", "m/models/model.json"}), "accepted", "is a model, not data"},
        {zip_of({"m/readme.txt"}), "is a zip archive, but not a model", kUnpack},
        {zip_of({"x.npy", "y.npy"}), "contains NumPy arrays", "is an .npz archive"},
        {old_pickle, kWeights, kNoPickle},
        {std::string("\x80\x04\x95", 3), kWeights, kNoPickle},
        {std::string("\x80\x02}q\x01.", 6), kWeights, kNoPickle},
        {little(header.size(), 8) + header + "abcd", "contains weights (safetensors)",
         "contains tensors (safetensors), not raw tokens"},
        {npy_header(), "contains NumPy arrays", "is a NumPy array with a header, not raw tokens"},
        {"version https://git-lfs.github.com/spec/v1\noid sha256:12\nsize 3\n", kFetch, kFetch},
        {"<!DOCTYPE html>\n<html><body>404</body></html>", kPage, kPage},
        {"\n  <HTML>", kPage, kPage},
        {std::string("\x08\x08\x12\x07pytorch\x1a\x05"
                     "2.11.0",
                     18),
         "is an ONNX graph", "accepted"},
        {"GGUF\3", "dslaunch model import", "is a model, not data"},
        {"\x1f\x8b\x08 and so on", "is compressed", kUnpack},
        {"\x28\xb5\x2f\xfd and so on", "is compressed", kUnpack},
        {"PAR1 and so on", kTable, kTable},
        {"ARROW1 and so on", kTable, kTable},
        {"In the beginning God created the heaven and the earth.",
         "is text, not a model (such as a",
         "is text, not tokens: to make each byte a token, run `dslaunch tokens bytes"},
        {"\xe8\xb5\xb7\xe5\x88\x9d\xe7\xa5\x9e\xe5\x88\x9b\xe9\x80\xa0\xe5\xa4\xa9\xe5\x9c\xb0"
         "\xe3\x80\x82\xe5\x9c\xb0\xe6\x98\xaf\xe7\xa9\xba\xe8\x99\x9a\xe6\xb7\xb7\xe6\xb2\x8c",
         "dslaunch data prepare ", "is text, not tokens"},
        {"", "accepted", "accepted"},
        {std::string(40, '\5'), "accepted", "accepted"},
        {zip_of({"m/data.pkl"}).substr(0, 30), "accepted", kUnpack},
        {zip_of({"[Content_Types].xml", "word/document.xml"}), "accepted", kUnpack},
    };
    for (const Row& row : rows) {
        INFO(row.content.substr(0, 40));
        CHECK_THAT(message_of(require_model, "m.pth", row.content), Catch::Contains(row.as_model));
        CHECK_THAT(message_of(kData, "d.bin", row.content), Catch::Contains(row.as_tokens));
    }
    CHECK_NOTHROW(require_model("/proc/no/such/file"));
    CHECK_NOTHROW(require_data("/proc/no/such/file"));
    CHECK(has_model_name("a/model.safetensors"));
    CHECK_FALSE(has_model_name("train.pt"));
    CHECK_FALSE(has_model_name("run.sh"));
}

TEST_CASE("the weights of a model are not data, whatever their number") {
    const auto tensors = [](const std::string& json, size_t bytes) {
        return little(json.size(), 8) + json + std::string(bytes, '\0');
    };
    const std::string weights =
        tensors(R"({"a.weight":{"dtype":"F32","shape":[2,1],"data_offsets":[0,8]},)"
                R"("b.weight":{"dtype":"F32","shape":[1],"data_offsets":[8,12]}})",
                12);
    CHECK_THAT(message_of(kData, "model.safetensors", weights),
               Catch::Contains("contains the weights of a model, not rows of data"));
    CHECK_THAT(message_of(kRows, "model.safetensors", weights),
               Catch::Contains("dslaunch data prepare TEXTS --model FOLDER"));
    // Columns of equal length may have any names.
    const std::string columns =
        tensors(R"({"a.weight":{"dtype":"F32","shape":[2,1],"data_offsets":[0,8]},)"
                R"("y":{"dtype":"F32","shape":[2],"data_offsets":[8,16]}})",
                16);
    CHECK(message_of(kData, "x.safetensors", columns) == "accepted");
}

TEST_CASE("rows are what their names say, and a table in text is told from a text") {
    const std::string header = "{}";
    CHECK(message_of(kData, "x.safetensors", little(2, 8) + header) == "accepted");
    CHECK(message_of(kData, "x.npy", npy_header()) == "accepted");
    CHECK_THAT(message_of(kData, "x.npy", "version https://git-lfs.github.com/spec/v1\n"),
               Catch::Contains("git lfs pull"));
    CHECK_THAT(message_of(kData, "x.csv", "x,y\n1.0,2.0\n3.0,4.0\n5.0,6.0\n7.0,8.0\n"),
               Catch::Contains("is a text table, which is not supported: save its columns"));
}

TEST_CASE("a text beside a model's folder is told the command that makes rows of it") {
    const TemporaryFolder folder;
    const std::string chats = folder.path() + "/chats.jsonl", book = folder.path() + "/book.txt";
    write_file(chats, R"({"messages": [{"role": "user", "content": "Who?"}]})"
                      "\n");
    write_file(book, "In the beginning God created the heaven and the earth.\n");
    const auto said = [](const std::string& path, const std::string& model) {
        return error_of(ExitCode::kInput, [&] { require_data(path, model); });
    };
    const std::string command = " --model SmolLM2 --pack -o ";
    CHECK(said(chats, "SmolLM2") ==
          chats +
              ": contains JSON, not tokens. First convert it to rows of tokens with the tokenizer "
              "of the model: dslaunch data prepare " +
              chats + command + "chats.safetensors");
    CHECK(said(book, "SmolLM2") ==
          book +
              ": is text, not tokens. First convert it to rows of tokens with the model's "
              "tokenizer: dslaunch data prepare " +
              book + command + "book.safetensors");
    CHECK_THAT(said(chats, ""), Catch::Contains("--model FOLDER --pack"));
    CHECK_THAT(said(book, ""), Catch::Contains("`dslaunch tokens bytes"));
    CHECK_THAT(error_of(ExitCode::kInput, [&] { require_rows(chats, "SmolLM2"); }),
               Catch::Contains("dslaunch data prepare " + chats + command));
}

TEST_CASE("a file that is no rows, and one that is no safetensors, are said to be what they are") {
    const std::string text = "In the beginning God created the heaven and the earth.\n";
    const std::string pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:12\n";
    CHECK_THAT(message_of(kRows, "kjv.txt", text),
               Catch::Contains("is text, not rows of tokens. First convert it: dslaunch data"));
    CHECK_THAT(message_of(kRows, "kjv.tokens", tokens(std::vector<uint16_t>(200, 300))),
               Catch::Contains("a file of raw tokens has no rows to show"));
    CHECK_THAT(message_of(kRows, "r.safetensors", pointer), Catch::Contains("git lfs pull"));
    CHECK(message_of(kRows, "r.safetensors", little(2, 8) + "{}") == "accepted");
    const Check parse = [](const std::string& path) { SafetensorsFile file(path); };
    CHECK_THAT(message_of(parse, "m.safetensors", pointer), Catch::Contains("git lfs pull"));
    CHECK_THAT(message_of(parse, "m.safetensors", "<!DOCTYPE html>\n<html></html>"),
               Catch::Contains("is a web page"));
    CHECK_THAT(message_of(parse, "m.safetensors", ""), Catch::Contains("is empty: the download"));
    CHECK_THAT(message_of(parse, "m.safetensors", std::string(9000, '\0')),
               Catch::Contains("contains only zero bytes: the download"));
    CHECK_THAT(message_of(parse, "m.safetensors", "Entry not found"),
               Catch::Contains("contains \"Entry not found\", a server's answer"));
    CHECK_THAT(message_of(parse, "m.safetensors", text),
               Catch::Contains("is text, not a .safetensors file: its header of"));
    CHECK_THAT(
        message_of(parse, "m.safetensors", std::string("\x80\x04\x95", 3)),
        Catch::Contains("is a pickle written by torch.save, not a .safetensors file: its 3 bytes"));
}

TEST_CASE("a file that cannot be started as a job's target is told the commands that use it") {
    const TemporaryFolder folder;
    const auto said = [&](const std::string& name, const std::string& content) {
        const std::string path = folder.path() + "/" + name;
        write_file(path, content);
        const std::string message = error_of(ExitCode::kInput, [&] { require_target(path); });
        if (message == "accepted") return message;
        REQUIRE(message.starts_with(path + ": "));
        std::string rest = message.substr(path.size() + 2);
        for (size_t at = rest.find(path); at != rest.npos; at = rest.find(path))
            rest.replace(at, path.size(), name);
        return rest;
    };
    CHECK(said("train.sh", "#!/bin/sh\necho hi\n") ==
          "is a script, but not executable: chmod +x train.sh, then start it as train.sh");
    const std::string text = "In the beginning God created the heaven.";
    const std::string rows_of = " --model FOLDER --pack -o ";
    CHECK(
        said("kjv.txt", text) ==
        "is text, neither a model nor an executable program. To train on it: dslaunch data "
        "prepare kjv.txt" +
            rows_of +
            "kjv.safetensors, then dslaunch FOLDER --data kjv.safetensors (FOLDER: a Hugging "
            "Face model); or, for a model whose tokens are bytes: dslaunch tokens bytes kjv.txt -o "
            "kjv.txt.tokens, then dslaunch train.pt --data kjv.txt.tokens. If it is a script, "
            "make it executable with chmod +x");
    // A model of bytes should not learn from JSON's punctuation.
    const std::string chats =
        said("chats.jsonl", R"({"messages": [{"role": "user", "content": "Who?"}]})"
                            "\n");
    CHECK_THAT(chats, Catch::Contains("dslaunch data prepare chats.jsonl" + rows_of) &&
                          !Catch::Contains("tokens bytes"));
    CHECK_THAT(said("t.parquet", "PAR1 and so on"),
               Catch::Contains("dslaunch data prepare t.parquet" + rows_of));
    CHECK_THAT(said("x.csv", "x,y\n1.0,2.0\n3.0,4.0\n5.0,6.0\n7.0,8.0\n"),
               Catch::Contains("Text tables are not supported: save its columns"));
    const std::string header = R"({"tokens":{"dtype":"I32","shape":[1,1],"data_offsets":[0,4]}})";
    CHECK(said("r.safetensors", little(header.size(), 8) + header + "abcd") ==
          "contains rows of tokens, not a model; to train on it: dslaunch FOLDER --data "
          "r.safetensors");
    CHECK_THAT(said("x.npy", npy_header()), Catch::Contains("dslaunch FOLDER --data x.npy"));
    CHECK_THAT(said("kjv.tokens", tokens(std::vector<uint16_t>(200, 300))),
               Catch::Contains("neither a model nor a program; to train on it"));
    CHECK_THAT(said("w", std::string("\x80\x04\x95", 3)),
               Catch::Contains("is a pickle written by torch.save: it has weights"));
    CHECK(said("prog", std::string(40, '\5')) == "accepted");
}

TEST_CASE("weights next to their model are told its name") {
    const std::string header = R"({"w":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})";
    const std::string weights = little(header.size(), 8) + header + "abcd";
    struct Row {
        const char* file;
        const char* beside;
        const char* named;  // AT is the folder
    };
    for (const Row& row :
         {Row{"model.safetensors", "config.json",
              "it belongs to a model: give the model's folder, AT"},
          Row{"model-00001-of-00002.safetensors", "config.json",
              "it belongs to a model: give the model's folder, AT"},
          Row{"pytorch_model.bin", "config.json",
              "it belongs to a model: give the model's folder, AT"},
          Row{"model.safetensors", "model.pt",
              "the model next to it has the weights and the graph: give AT/model.pt"},
          Row{"gpt.safetensors", "gpt.pt2", "give AT/gpt.pt2"},
          Row{"adapter_model.safetensors", "adapter_config.json", "--adapter AT"},
          Row{"model.safetensors", "readme",
              "make a model in Python from the module that has these"}}) {
        const TemporaryFolder folder;
        const std::string path = folder.path() + "/" + row.file;
        const bool is_pickle = path.ends_with(".bin");
        write_file(path, is_pickle ? std::string("\x80\x04\x95", 3) : weights);
        write_file(folder.path() + "/" + row.beside, "{}");
        std::string named = row.named;
        if (const size_t at = named.find("AT"); at != named.npos)
            named.replace(at, 2, folder.path());
        INFO(row.file << " beside " << row.beside);
        CHECK_THAT(error_of(ExitCode::kInput, [&] { require_model(path); }),
                   Catch::Contains(named));
        CHECK_THAT(error_of(ExitCode::kInput, [&] { require_target(path); }),
                   Catch::Contains(named));
    }
    const TemporaryFolder folder;
    for (const char* name : {"config.json", "tokenizer.json"})
        write_file(folder.path() + "/" + name, "{\"model_type\": \"llama\", \"bos\": 1}");
    for (const char* name : {"/config.json", "/tokenizer.json"})
        CHECK_THAT(
            error_of(ExitCode::kInput, [&] { require_target(folder.path() + name); }),
            Catch::Contains("belongs to a model: give the model's folder, " + folder.path()));
}

TEST_CASE("tokens are not taken for something else by how they begin") {
    // 640 to 1408 begin like pickles, 35615 like gzip, 23106 like bzip2. The last row has letters
    // and one other token, which no text in ASCII has.
    const std::vector<std::vector<uint16_t>> rows = {
        {640, 7, 9, 11}, {896, 0x2e00}, {1152, 7, 9, 0x2e00}, {35615, 7, 9}, {23106, 7, 9}};
    for (const std::vector<uint16_t>& row : rows) {
        std::vector<uint16_t> numbers = row;
        numbers.insert(numbers.end(), 40, 264);
        INFO(row[0]);
        CHECK(message_of(kData, "d.bin", tokens(numbers)) == "accepted");
    }
    std::vector<uint16_t> letters(3000, 0x6e49);
    letters[1000] = 13;
    CHECK(message_of(kData, "d.bin", tokens(letters)) == "accepted");
    // A text that is too short to be known by its content is known by its name.
    CHECK_THAT(message_of(kData, "d.txt", "In the beginning"),
               Catch::Contains("is text, not tokens"));
    CHECK(message_of(kData, "d.bin", "In the beginning") == "accepted");
}
