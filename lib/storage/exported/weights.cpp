#include "storage/exported/weights.h"

#include <optional>

#include "base/text/json_place.h"
#include "storage/scripted/tensor_extent.h"

namespace dslaunch::storage {

namespace {

int64_t natural(const JsonPlace& place) {
    const auto [kind, value] = place.only();
    if (kind != "as_int") place.refuse("a weight's size must be a number");
    const int64_t number = value.integer();
    if (number < 0) place.refuse("a weight's size must not be negative");
    return number;
}

std::vector<int64_t> naturals(const JsonPlace& list) {
    std::vector<int64_t> numbers;
    list.for_elements([&](const JsonPlace& element) { numbers.push_back(natural(element)); });
    return numbers;
}

ExportedTensor tensor_of(const JsonPlace& entry) {
    entry.expect_object({"path_name", "is_param", "use_pickle", "tensor_meta"});
    if (entry.has("use_pickle") && entry.at("use_pickle").boolean())
        entry.refuse(
            "it is kept as a pickle, which is never read (a tensor subclass?): make plain tensors "
            "of the module's parameters and buffers before torch.export");
    ExportedTensor tensor;
    tensor.record = entry.at("path_name").text();
    if (tensor.record.empty() || tensor.record.find('/') != std::string::npos)
        entry.at("path_name").refuse("this is no record's name");
    tensor.is_parameter = entry.at("is_param").boolean();
    const JsonPlace meta = entry.at("tensor_meta");
    meta.expect_object(
        {"dtype", "sizes", "requires_grad", "device", "strides", "storage_offset", "layout"});
    constexpr int64_t kStrided = 7;  // code in the schema's Layout
    if (meta.at("layout").integer() != kStrided)
        meta.at("layout").refuse("only dense tensors can be read");
    tensor.dtype = meta.at("dtype").integer();
    tensor.requires_grad = meta.at("requires_grad").boolean();
    tensor.sizes = naturals(meta.at("sizes"));
    tensor.strides = naturals(meta.at("strides"));
    tensor.offset = natural(meta.at("storage_offset"));
    const std::optional<TensorExtent> extent =
        tensor_extent(tensor.offset, tensor.sizes, tensor.strides);
    if (!extent) meta.refuse("no tensor has such sizes, strides and offset");
    tensor.reach = extent->reach;
    tensor.numel = extent->numel;
    return tensor;
}

}  // namespace

std::map<std::string, ExportedTensor> parse_weights_table(const std::string& path,
                                                          std::string_view text) {
    const JsonPlace::Json json = JsonPlace::parse(path, text);
    const JsonPlace root(path, json);
    root.expect_object({"config"});
    std::map<std::string, ExportedTensor> tensors;
    root.at("config").for_members([&](const std::string& name, const JsonPlace& entry) {
        tensors.emplace(name, tensor_of(entry));
    });
    return tensors;
}

}  // namespace dslaunch::storage
