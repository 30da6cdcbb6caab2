# ---------------------------------------------------------------------------------------------------------------------
# Start to end


def answered(channel, job, module, asked):
    """One recording, told; or why there is none. Answers whether that is the end."""
    begun = time.time()
    try:
        recorded = record(job, module, asked["sizes"], asked["precision"], asked["capability"],
                          asked.get("direct", False), asked.get("checkpoint", "none"), asked.get("variant") or {},
                          asked.get("shortened", False))
    except Exception as error:
        if not asked.get("may_fail"):
            return refused(channel, error)
        known = isinstance(error, Refusal)
        channel.send(refused=error.problem if known else "%s: %s" % (type(error).__name__, str(error)[:500]),
                     hint=error.hint if known else "call torch.utils.checkpoint in the model itself")
        return 0
    channel.send(recording=recorded, seconds=round(time.time() - begun, 2))
    return 0


def set_aside():
    """What is there by now stays; the garbage collector need not look through it in every recording."""
    gc.collect()
    gc.freeze()


def packages():
    """Libraries of models that were imported, and their versions."""
    names = ("accelerate", "bitsandbytes", "diffusers", "peft", "timm", "torchvision", "transformers")
    found = [(name, getattr(sys.modules.get(name), "__version__", None)) for name in names]
    return [[name, str(version)] for name, version in found if version is not None]


def refused(channel, error):
    if isinstance(error, Refusal):
        channel.send(refused=error.problem, hint=error.hint)
        return 2
    last = traceback.extract_tb(error.__traceback__)[-1]
    traceback.print_exception(type(error), error, error.__traceback__)
    hint = "what was printed above says where it stopped"
    if "driver" in str(error):
        hint = "it needs a card's driver there: while it is traced, put what allocates the same in its place"
    channel.send(refused="%s: %s (%s:%s)" % (type(error).__name__, str(error).split("\n")[0][:500], last.filename,
                                             last.lineno), hint=hint)
    return 2


def main():
    out = os.dup(1)
    os.dup2(2, 1)
    channel = Channel(out)
    try:
        job = json.loads(sys.argv[1])
        for folder in job.get("path", []):
            sys.path.append(folder)
        try:
            import torch
        except ImportError as error:
            raise Refusal("PyTorch cannot be imported: %s" % error, "name a Python that has it with --python")
        torch.set_num_threads(1)
        try:
            module = marked(job["module"], job["arguments"]) if job.get("script") else imported(job["module"])
        except ImportError as error:
            raise Refusal("%s cannot be imported: %s" % (job["module"], error),
                          "run it where the module is, or name its folder with --path")
        for variant in job.get("variants", []):
            # What cannot be done to the model is said before anything is recorded.
            model, built = build(job, module)
            varied(model, variant, built, "fp32")
            del model
        about = {}
        if job.get("script"):
            # As `--input` and `--axis` would say it.
            inputs = ["%s=%s[%s]" % (name, of["dtype"], ",".join(of["shape"])) for name, of in module.given.items()]
            axes = ["%s=%d" % axis for axis in module.axes.items()]
            about = {"inputs": inputs, "axes": axes, "precision": module.precision, "lines": module.text}
        set_aside()
        channel.send(hello=PROTOCOL, torch=torch.__version__, python=sys.version.split()[0], packages=packages(), **about)
        first = True
        for line in sys.stdin:
            asked = json.loads(line)
            # A script's models are as it made them, and each recording begins with them so.
            child = os.fork() if job.get("script") else None
            if child:
                code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
                if code:
                    return 2
                continue
            if child == 0:
                # The pool of threads is made anew after a fork by whoever asks first; of the threads that backward starts two may
                # ask at once, and one of them is given none.
                torch.set_num_threads(1)
            status = answered(channel, job, module, asked)
            if child == 0:
                os._exit(status)
            if status:
                return status
            if first:
                # Much is imported only when the model is made.
                set_aside()
            first = False
    except BaseException as error:
        return refused(channel, error)
    return 0


if __name__ == "__main__":
    sys.exit(main())
