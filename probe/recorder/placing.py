# ---------------------------------------------------------------------------------------------------------------------
# The model on the card


def on_card(model, dtype, tape, contents):
    """`model.to("cuda")`, in its order: children first, then own parameters and buffers; tied ones stay tied."""
    import torch

    moved = {}

    def fresh(tensor, name=None):
        made = torch.empty_strided(tensor.shape, tensor.stride(), device="cuda",
                                   dtype=dtype if dtype is not None and tensor.is_floating_point() else tensor.dtype)
        tape.storages[tape.see(made)][3] = name or ("parameter" if isinstance(tensor, torch.nn.Parameter) else "buffer")
        return made

    def move(module, path):
        for name, child in module._modules.items():
            if child is not None:
                move(child, path + "." + name if path else name)
        tape.modules.append(tape.module(path))
        for name, parameter in module._parameters.items():
            if parameter is not None:
                if id(parameter) not in moved:
                    made = torch.nn.Parameter(fresh(parameter), requires_grad=parameter.requires_grad)
                    if type(parameter).__name__ in ("Params4bit", "Int8Params"):
                        beside(parameter, made, module, fresh)
                    moved[id(parameter)] = parameter, made
                module._parameters[name] = moved[id(parameter)][1]
        for name, buffer in module._buffers.items():
            if buffer is not None:
                if id(buffer) not in moved:
                    moved[id(buffer)] = buffer, fresh(buffer)
                    contents.load(tape.see(moved[id(buffer)][1]), buffer)
                module._buffers[name] = moved[id(buffer)][1]
        tape.modules.pop()

    move(model, "")
    # `move` knows itself, so what it has in hand would stay until the collector comes by: a buffer that the model puts another in
    # place of is gone at once.
    moved.clear()
