#include "storage/files/model_file.h"

#include <fstream>

#include "base/error.h"
#include "support/catch.h"
#include "support/temporary_folder.h"

using namespace dslaunch;
using namespace dslaunch::storage;
using dslaunch::test::TemporaryFolder;

namespace {

std::string little(uint64_t value, int bytes) {
    std::string text;
    for (int i = 0; i < bytes; ++i) text += static_cast<char>(value >> (8 * i) & 0xff);
    return text;
}

// A zip of empty stored records.
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

std::string message_of(const std::string& content) {
    const TemporaryFolder folder;
    const std::string path = folder.path() + "/m.pth";
    std::ofstream(path) << content;
    try {
        require_torchscript(path);
        return "accepted";
    } catch (const Error& error) {
        CHECK(error.code() == ExitCode::kInput);
        CHECK_THAT(error.what(), Catch::StartsWith(path + ": "));
        return error.what();
    }
}

}  // namespace

TEST_CASE("files that are no TorchScript archives are told apart by their content") {
    const std::string header = R"({"w":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})";
    const std::pair<std::string, std::string> rows[] = {
        {zip_of({"m/data.pkl", "m/version", "m/constants.pkl"}), "accepted"},
        {zip_of({"m/data.pkl", "m/version", "m/data/0"}), "is a pickle of torch.save"},
        {zip_of({"m/archive_format", "m/models/model.json"}), "is an exported program"},
        {zip_of({"m/readme.txt"}), "accepted"},
        {std::string("\x80\x02\x8a\x0al\xfc\x9c", 7), "is a pickle of torch.save"},
        {std::string("\x80\x04\x95", 3), "is a pickle of torch.save"},
        {little(header.size(), 8) + header + "abcd", "holds weights (safetensors)"},
        {"version https://git-lfs.github.com/spec/v1\noid sha256:12\nsize 3\n", "git lfs pull"},
        {"<!DOCTYPE html>\n<html><body>404</body></html>", "is a web page"},
        {"\n  <HTML>", "is a web page"},
        {std::string("\x08\x08\x12\x07pytorch\x1a\x05"
                     "2.11.0",
                     18),
         "is an ONNX graph"},
        {"", "accepted"},
        {std::string(40, 'Z'), "accepted"},
        {zip_of({"m/data.pkl"}).substr(0, 30), "accepted"},
    };
    for (const auto& [content, message] : rows) {
        INFO(content.substr(0, 40));
        CHECK_THAT(message_of(content), Catch::Contains(message));
    }
    CHECK_NOTHROW(require_torchscript("/no/such/file"));
    CHECK(has_model_name("a/model.safetensors"));
    CHECK_FALSE(has_model_name("train.pt"));
    CHECK_FALSE(has_model_name("run.sh"));
}
