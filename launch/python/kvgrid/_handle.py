"""Handle: an object of C's that a Python object owns. Closing an owner closes what it made, youngest first."""


class Handle:
    _handle = None
    _parent = None

    def _take(self, handle, parent=None):
        self._handle, self._parent, self._made = handle, parent, {}
        if parent is not None:
            parent._made[id(self)] = self
        return self

    @property
    def _as_parameter_(self):
        """What ctypes hands to C."""
        if self._handle is None:
            raise ValueError("this %s is closed" % type(self).__name__)
        return self._handle

    def _give(self):
        """The C handle for the last time; None where it was closed before."""
        handle, self._handle = self._handle, None
        if self._parent is not None:
            self._parent._made.pop(id(self), None)
        return handle

    def _about(self):
        """What tells this one from others, in a few words."""
        return ""

    def __repr__(self):
        about = ": closed" if self._handle is None else self._about()
        return "<kvgrid.%s%s>" % (type(self).__name__, about)

    def _close_made(self):
        for made in reversed(list(self._made.values())):
            made._close_by_owner()

    def _close_by_owner(self):
        self.close()

    def __reduce__(self):
        """copy, deepcopy and pickle: two would close one handle."""
        raise TypeError("a %s stands for one object of C's, which cannot be copied" % type(self).__name__)

    def __enter__(self):
        return self

    def __exit__(self, kind, *_):
        """Where views of the memory are alive as an exception passes, the object stays open and the exception goes on."""
        try:
            self.close()
        except BufferError:
            if kind is None:
                raise
