// Classes of modules in the names of their types.
#include "storage/exported/module_class.h"

#include "support/catch.h"

using namespace dslaunch::storage;

TEST_CASE("the class of a module is its type's name without what TorchScript adds") {
    CHECK(class_of_type("__torch__.torch.nn.modules.linear.Linear") == kLinearClass);
    CHECK(class_of_type("__torch__.torch.nn.modules.linear.___torch_mangle_12.Linear") ==
          kLinearClass);
    CHECK(class_of_type("__torch__.mine.___torch_mangle_0.Gate") == "mine.Gate");
    CHECK(class_of_type("__torch__.dslaunch.gpt.Linear3") == kLinearClass);
    CHECK(class_of_type("__torch__.dslaunch.transformer.TransposedLinear") ==
          "transformers.pytorch_utils.Conv1D");
    CHECK(class_of_type("__torch__.dslaunch.gpt.Block") == "dslaunch.gpt.Block");
}

TEST_CASE("a type that is named for a class gives it back; what is no name stays out") {
    CHECK(type_of_class("mine.deep.Gate", 7) == "__torch__.mine.deep.___torch_mangle_7.Gate");
    for (const std::string& name :
         {std::string("mine.deep.Gate"), std::string("Gate"), std::string(kLinearClass)})
        CHECK(class_of_type(type_of_class(name, 3)) == name);
    for (const char* name : {"", "mine.make.<locals>.Gate", "1.Gate", "a..b"})
        CHECK(type_of_class(name, 3) == "__torch__.exported.Module3");
}

TEST_CASE("a class is named as Python imports it") {
    CHECK(names_class("torch.nn.Linear", kLinearClass));
    CHECK(names_class("torch.nn.modules.linear.Linear", kLinearClass));
    CHECK(names_class("mine.Gate", "mine.Gate"));
    CHECK_FALSE(names_class("torch.nn.Conv2d", kLinearClass));
    CHECK_FALSE(names_class("torch.nn.Linear", "mine.Linear"));
    CHECK_FALSE(names_class("Linear", kLinearClass));
    CHECK_FALSE(names_class("torch.nn.linear.Linear", kLinearClass));
}
